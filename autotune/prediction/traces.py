"""What one model allocates at its points: exactly from a point's own trace, quickly from shared ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from autotune.errors import AutotuneError
from autotune.prediction.cache import TraceCache, code_digest
from autotune.prediction.composition import FUSED_4BIT_TOKENS, Composition
from autotune.prediction.events import Events, extrapolated
from autotune.prediction.figures import Figures, figures_of, shifted
from autotune.prediction.hardware import Hardware
from autotune.prediction.kept import KeptPredictions
from autotune.prediction.pool import Workers
from autotune.prediction.segments import NotAlike
from autotune.prediction.store import Request, TraceStore
from trials.wire import ModelSpec, Point

# More micro batches than three in a step repeat the middle one.
TRACED_ACCUMULATION = 3
QUICK_ACCUMULATION = 2


class Traces:
    """The traces of one model at one sequence length.

    Args:
        model: what is traced.
        seq_len: tokens per sequence.
        lora_targets: adapted modules; None for all linear layers except the head.
        processes: data-parallel processes.
        hardware: the GPU.
        cache: kept traces.
        gradient_clipping: largest gradient norm; 0 turns clipping off.
        workers: idle workers, shared by all traces of these processes.
        torch_adam: torch's AdamW where DeepSpeed would compile FusedAdam.
        load_whole: load a quantised base whole before quantising it, as the shared measurements did.
        outside_bytes: what predictions count outside the allocator; None for the shipped figure.

    Attributes:
        kept: predictions made of these traces.
    """

    def __init__(
        self,
        model: ModelSpec,
        seq_len: int,
        lora_targets: Sequence[str] | None,
        processes: int,
        hardware: Hardware,
        cache: TraceCache,
        gradient_clipping: float,
        workers: Workers,
        *,
        torch_adam: bool = False,
        load_whole: bool = False,
        outside_bytes: int | None = None,
    ) -> None:
        fixed: dict[str, Any] = {
            "model": {"name": "model", "config": model.config, "weights": None},
            "seq_len": seq_len,
            "lora_targets": sorted(lora_targets) if lora_targets else None,
            "processes": processes,
            "capability": list(hardware.capability),
            "multiprocessors": hardware.multiprocessors,
            "gradient_clipping": gradient_clipping,
            "torch_adam": torch_adam,
            "load_whole": load_whole,
        }
        about = [fixed, hardware.name, outside_bytes, code_digest()]
        self.kept = KeptPredictions(cache.folder, about)
        self._seq_len = seq_len
        self._store = TraceStore(fixed, cache, workers)
        self._neighbours: dict[tuple[Point, int], Events] = {}
        self._figures: dict[Point, Figures] = {}
        self._composition = Composition(model, seq_len, processes, self._store)

    def exact(self, point: Point) -> Events:
        """The point's own trace.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        return self._store.get(_own(point))

    def make(self, points: Iterable[Point]) -> None:
        """Make the points' own traces, on all workers at once."""
        self._store.make([_own(point) for point in points])

    def quick(self, point: Point) -> tuple[Figures, Events]:
        """The peaks of a point from shared traces where that is possible, and a trace of its host memory.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        try:
            if self._composition.covers(point):
                return self._composition.figures(point)
            if self._composition.covers(resident(point)):
                return self._fetched(point)
        except (NotAlike, AutotuneError):
            # Its own trace says what it is, or why there is none.
            pass
        events = self._extrapolated(_coarse(point))
        return figures_of(events), events

    def _fetched(self, point: Point) -> tuple[Figures, Events]:
        """With parameters off the device: as if they stayed, less what that saves a neighbour."""
        neighbour = self._neighbour(point)
        own = self.exact(neighbour)
        figures, events = self._composition.figures(resident(point))
        kept, _ = self._composition.figures(resident(neighbour))
        key = (neighbour, events.trainable_parameters)
        if key not in self._neighbours:
            self._neighbours[key] = replace(
                own,
                trainable_parameters=events.trainable_parameters,
                total_parameters=events.total_parameters,
            )
        return shifted(figures, kept, self._neighbour_figures(neighbour)), self._neighbours[key]

    def _neighbour_figures(self, neighbour: Point) -> Figures:
        if neighbour not in self._figures:
            self._figures[neighbour] = figures_of(self.exact(neighbour))
        return self._figures[neighbour]

    def _neighbour(self, point: Point) -> Point:
        """The point whose own trace tells what keeping parameters off the device saves a point."""
        return _coarse(
            point.model_copy(
                update={
                    "micro_batch_size": _low_batch(point, self._seq_len),
                    "gradient_accumulation_steps": QUICK_ACCUMULATION,
                    "checkpoint_fraction": 1.0,
                    "lora_rank": self._composition.lowest_rank(resident(point)),
                    "liger_kernel": False,
                }
            )
        )

    def prepare(self, points: Sequence[Point]) -> None:
        """Make every trace that `quick` will need for these points, on all workers at once."""
        covers = self._composition.covers
        fetched = [point for point in points if not covers(point) and covers(resident(point))]
        kept = [resident(point) for point in fetched]
        self._composition.expect([*points, *kept])
        neighbours = {self._neighbour(point) for point in fetched}
        beside = [_own(point) for point in neighbours]
        self._composition.prepare([*points, *kept, *map(resident, neighbours)], beside)
        alone = [_coarse(point) for point in points if not (covers(point) or covers(resident(point)))]
        needed = {need for point in alone for need in _needed(point, self._seq_len)}
        self.make(needed)

    def is_shared(self, point: Point) -> bool:
        """Whether `quick` puts the point together from traces that serve many."""
        return self._composition.covers(point) or self._composition.covers(resident(point))

    def is_estimated(self, point: Point) -> bool:
        """Whether `quick` takes even what is allocated from a neighbour."""
        covers = self._composition.covers
        return not covers(point) and covers(resident(point))

    def _extrapolated(self, point: Point) -> Events:
        low = _low_batch(point, self._seq_len)
        if point.micro_batch_size <= low + 1:
            return self.exact(point)
        found = extrapolated(
            self.exact(point.model_copy(update={"micro_batch_size": low})),
            self.exact(point.model_copy(update={"micro_batch_size": low + 1})),
            low,
            low + 1,
            point.micro_batch_size,
        )
        return self.exact(point) if found is None else found


def resident(point: Point) -> Point:
    """The point with its parameters on the device."""
    offload = point.offload.removeprefix("nvme_").removesuffix("+parameters")
    return point.model_copy(update={"offload": offload})


def _own(point: Point) -> Request:
    accumulation = min(point.gradient_accumulation_steps, TRACED_ACCUMULATION)
    # What is on NVMe instead of the host is on the device at no other time.
    offload = point.offload.removeprefix("nvme_")
    return Request(point.model_copy(update={"gradient_accumulation_steps": accumulation, "offload": offload}))


def _coarse(point: Point) -> Point:
    """The point with at most two micro batches in a step: a first and a last one, which hold the peaks."""
    accumulation = min(point.gradient_accumulation_steps, QUICK_ACCUMULATION)
    return point.model_copy(update={"gradient_accumulation_steps": accumulation})


def _low_batch(point: Point, seq_len: int) -> int:
    # bitsandbytes takes other kernels for few tokens; at one sequence some copies are no copies.
    return max(2, FUSED_4BIT_TOKENS // seq_len + 1) if point.quantization == "nf4" else 2


def _needed(point: Point, seq_len: int) -> list[Point]:
    low = _low_batch(point, seq_len)
    if point.micro_batch_size <= low + 1:
        return [point]
    return [point.model_copy(update={"micro_batch_size": size}) for size in (low, low + 1)]
