"""A predictor for one training: what stays the same from point to point is said once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.prediction.prediction import Prediction, PredictionFailure
from autotune.prediction.predictor import Predictor
from trials.wire import ModelSpec, Point


@dataclass(frozen=True)
class PointPredictor:
    """Predicts points of one model, sequence length and set of adapted modules.

    Attributes:
        predictor: makes predictions; its owner closes it.
        model: what is trained.
        seq_len: tokens per sequence.
        lora_targets: adapted modules; None for all linear layers except the head.
        processes: data-parallel processes.
    """

    predictor: Predictor
    model: ModelSpec
    seq_len: int
    lora_targets: tuple[str, ...] | None
    processes: int

    def of(self, predictor: Predictor) -> PointPredictor:
        """The same training with another predictor."""
        return replace(self, predictor=predictor)

    def exact(self, point: Point) -> Prediction:
        """From the point's own trace.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        return self.predictor.predict(
            self.model, self.seq_len, point, lora_targets=self.lora_targets, processes=self.processes
        )

    def many(
        self, points: Sequence[Point], *, exact: bool = False
    ) -> Iterator[Prediction | PredictionFailure]:
        """From shared traces, or from each point's own; a failure stands in its place."""
        return self.predictor.predict_many(
            self.model,
            self.seq_len,
            points,
            lora_targets=self.lora_targets,
            processes=self.processes,
            exact=exact,
        )

    def is_shared(self, point: Point) -> bool:
        """Whether the point's figures come from traces that serve many."""
        return self.predictor.is_shared(
            self.model, self.seq_len, point, lora_targets=self.lora_targets, processes=self.processes
        )
