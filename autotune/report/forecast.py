"""The prediction of the winner's memory for its report: made now if possible, else what its trial kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, UsageError

if TYPE_CHECKING:
    from autotune.prediction import Predictor
    from autotune.report.evidence import Evidence
    from trials.wire import TrialResult


@dataclass(frozen=True)
class Forecast:
    """A prediction of the winner.

    Attributes:
        values: as `autotune estimate --json` has them; without `breakdown` where only totals were kept.
        comparable: whether it counts what was measured; a study on the CPU counts other things.
        note: where it comes from, or why there is no better one.
    """

    values: dict[str, Any]
    comparable: bool
    note: str


def forecast_of(evidence: Evidence, say: Callable[[str], None]) -> Forecast | None:
    """The winner's prediction; None where there is no winner, or nothing can be said.

    Args:
        evidence: the study.
        say: told what takes time and what is impossible.
    """
    chosen = evidence.chosen
    if chosen is None:
        return None
    on_gpu = evidence.inputs.device == "cuda"
    try:
        if evidence.model is None:
            raise UsageError("the study does not hold its model")
        values = _predicted(evidence, chosen.measured, say)
    except (AutotuneError, OSError) as error:
        reason = error.message if isinstance(error, AutotuneError) else str(error)
        say(f"the winner's memory cannot be predicted here ({reason})")
        kept = chosen.record.predicted
        if kept is None:
            return None
        return Forecast(kept, on_gpu, "as it was predicted before the trial")
    if on_gpu:
        return Forecast(values, True, "predicted for this report, with the machine's measured share")
    return Forecast(values, False, "predicted for a GPU")


def _predicted(evidence: Evidence, measured: TrialResult, say: Callable[[str], None]) -> dict[str, Any]:
    from autotune.prediction import Predictor

    assert evidence.model is not None and evidence.chosen is not None
    inputs = evidence.inputs
    outside = measured.outside_allocator_bytes if inputs.device == "cuda" else None
    say("predicting the winner's memory piece by piece")

    def predict(predictor: Predictor) -> dict[str, Any]:
        assert evidence.model is not None and evidence.chosen is not None
        prediction = predictor.predict(
            evidence.model,
            inputs.seq_len,
            evidence.chosen.record.point,
            lora_targets=inputs.lora_targets,
            processes=inputs.gpus,
        )
        return prediction.model_dump(mode="json")

    try:
        predictor = Predictor(gpu=inputs.gpu_name, outside_allocator_bytes=outside, workers=1)
    except UsageError:
        # A GPU that is in no table: its kernels are taken to be the H200's.
        predictor = Predictor(outside_allocator_bytes=outside, workers=1)
    with predictor:
        return predict(predictor)
