"""The model's part of a step, put together from a trace of a copy with few layers.

`trials.tracing.layers` marks where each layer's forward and backward begin. Layers of one kind allocate
alike, so a micro batch of any number of layers is a sequence of the copy's segments: the first layer, inner
ones repeated, those beside the end of checkpointing, the last, and what is around the layers. That interior
layers do repeat is checked on the copy; where it does not hold, points are traced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.events import Events

# Layers of the copy, and how many of them are recomputed in its three kinds of runs.
COPIED_LAYERS = 4
SHAPES = (0, 2, 4)
GRADIENTS = "gradients"
WORKSPACES = "workspaces"


class NotAlike(Exception):
    """Layers or micro batches differ in more than sizes."""


@dataclass(frozen=True)
class Segment:
    """A stretch of events.

    Attributes:
        sizes: requested bytes of each event; negative where they are freed.
        kinds: what they are for.
        marks: (event the mark comes before, text): phases, and parameters whose gradient arrives.
    """

    sizes: NDArray[np.int64]
    kinds: NDArray[np.int16]
    marks: tuple[tuple[int, str], ...]

    def like(self, other: Segment) -> bool:
        """Whether both are the same events, with other sizes."""
        return (
            len(self.sizes) == len(other.sizes)
            and self.marks == other.marks
            and bool(np.array_equal(np.sign(self.sizes), np.sign(other.sizes)))
        )

    def renamed(self, rename: Callable[[str], str]) -> Segment:
        """With other names of parameters."""
        return replace(self, marks=tuple((where, rename(text)) for where, text in self.marks))


@dataclass(frozen=True)
class Stream:
    """A micro batch, or an evaluation pass, of the whole model; as `Segment`, in bytes as allocated.

    Attributes:
        rounded: allocated bytes, signed, of each event.
        ends: for each mark, and for the end, the events before it.
    """

    sizes: NDArray[np.int64]
    kinds: NDArray[np.int16]
    rounded: NDArray[np.int64]
    texts: tuple[str, ...]
    ends: NDArray[np.int64]


class LayerTraces:
    """The segments of one traced copy: one rank, some micro batches.

    Args:
        events: what `trials.tracing.layers` recorded.
        runs: (micro batch, recomputed layers) of each of its runs.
        evaluations: micro batches of its evaluation passes.
    """

    def __init__(self, events: Events, runs: Sequence[tuple[int, int]], evaluations: Sequence[int]) -> None:
        if events.origins is None or events.handed is None or len(events.layers) != COPIED_LAYERS:
            raise NotAlike("the model has no layers that can be counted")
        self.categories = events.categories
        self.layer_prefix = events.layer_prefix
        self._events = events
        self._read = _signed(events)
        self.runs: dict[tuple[int, int], dict[str, Segment]] = {}
        starts = {text: index for index, text in events.marks}
        ends = [index for index, text in events.marks if text == "run end"]
        warm = self._segments(starts["warm-up"], ends[0])
        for number, run in enumerate(runs):
            self.runs[run] = self._segments(starts[f"run {number}"], ends[number + 1])
        _require_same(warm, self.runs[runs[0]])
        bounds = [starts[f"evaluate {number}"] for number in range(len(evaluations))]
        bounds.append(starts["end"])
        self.evaluations = {
            micro_batch: self._segments(bounds[number], bounds[number + 1])
            for number, micro_batch in enumerate(evaluations)
        }
        self.arrivals = self.sequence_marks(self.runs[runs[0]])

    def sequence_marks(self, segments: dict[str, Segment]) -> tuple[str, ...]:
        """Every mark of a run, in order."""
        return tuple(text for segment in segments.values() for _, text in segment.marks)

    def _segments(self, begin: int, end: int) -> dict[str, Segment]:
        """A run's segments by name: `start`, `F0` ... , `middle`, `B3` ... , `end`."""
        sizes, kinds, births = self._read
        found: dict[str, Segment] = {}
        name, since = "start", begin
        inside: list[tuple[int, str]] = []
        cuts: list[tuple[str, int, list[tuple[int, str]]]] = []
        grad = 0
        for index, text in self._events.marks:
            if index < begin or index >= end:
                grad += text.startswith("grad")
                continue
            word, _, rest = text.partition(" ")
            turned = None
            if word == "layer":
                turned = f"F{rest}"
            elif text == "layers end":
                turned = "middle"
            elif text == "back in":
                turned = "end"
            elif word == "back":
                turned = f"B{rest}"
            elif word == "phase":
                inside.append((index, "phase step" if rest.endswith("_step") else text))
            elif word == "grad":
                inside.append((index, f"grad {self._events.parameters[int(rest)]}"))
            if turned is not None:
                cuts.append((name, since, inside))
                name, since, inside = turned, index, []
        cuts.append((name, since, inside))
        for number, (label, start, marks) in enumerate(cuts):
            stop = cuts[number + 1][1] if number + 1 < len(cuts) else end
            # A block that outlives its run belongs to nothing that is repeated.
            keep = np.flatnonzero((sizes[start:stop] != 0) & (births[start:stop] >= begin)) + start
            segment = Segment(
                sizes[keep],
                kinds[keep],
                tuple((int(np.searchsorted(keep, where)), text) for where, text in marks),
            )
            if label in found:
                raise NotAlike(f"layers are entered more than once: {label}")
            found[label] = segment
        return found


def _require_same(one: dict[str, Segment], other: dict[str, Segment]) -> None:
    same = one.keys() == other.keys() and all(
        segment.like(other[name]) and np.array_equal(segment.sizes, other[name].sizes)
        for name, segment in one.items()
    )
    if not same:
        raise NotAlike("the first micro batch differs from later ones")


def _signed(events: Events) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.int64]]:
    """The model's events: signed sizes (0: not the model's), kinds, and where their block is born."""
    assert events.origins is not None and events.handed is not None
    births = np.arange(len(events.ids))
    freed = np.flatnonzero(events.ids < 0)
    births[freed] = events.births[-events.ids[freed]]
    handed = np.zeros(len(events.births), dtype=np.bool_)
    handed[events.handed] = True
    is_handed = handed[np.abs(events.ids)] & (events.ids != 0)
    sizes = np.where(events.ids == 0, 0, events.sizes[births])
    sizes = np.where(events.ids < 0, -sizes, sizes)
    is_model = (events.origins[births] == 1) & (events.streams[births] >= 0)
    sizes = np.where(is_model & ~(is_handed & (events.ids < 0)), sizes, 0)
    kinds = events.kinds[births].copy()
    if GRADIENTS in events.categories:
        kinds[is_handed] = events.categories.index(GRADIENTS)
    elif is_handed.any():
        raise NotAlike("gradients are not named")
    return sizes, kinds, births
