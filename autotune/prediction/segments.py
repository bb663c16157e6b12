"""The model's part of a step, put together from a trace of a copy with few layers.

`trials.tracing.layers` marks where each layer's forward and backward begin. Layers of one kind allocate
alike, so a micro batch of any number of layers is a sequence of the copy's segments: the first layer, inner
ones repeated, those beside the end of checkpointing, the last, and what is around the layers. That interior
layers do repeat is checked on the copy; where it does not hold, points are traced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.allocator import ROUND_BYTES
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


class ModelPart:
    """What a model's operations allocate, for any micro batch, rank and number of recomputed layers.

    Args:
        traces: by rank.
        extrapolated_from: two micro batches whose events differ in nothing but sizes.
    """

    def __init__(self, traces: dict[int, LayerTraces], extrapolated_from: tuple[int, int]) -> None:
        self._traces = traces
        self._low, self._high = extrapolated_from
        first = next(iter(traces.values()))
        self.categories = first.categories
        self._prefix = first.layer_prefix
        if any(one.categories != self.categories for one in traces.values()):
            raise NotAlike("ranks differ in what they allocate")
        self._cache: dict[tuple[Any, ...], Segment] = {}

    def stream(self, micro_batch: int, rank: int, recomputed: int, layers: int) -> Stream:
        """One micro batch, forward and backward.

        Raises:
            NotAlike: it cannot be put together.
        """
        shape = 0 if recomputed == 0 else COPIED_LAYERS if recomputed == layers else COPIED_LAYERS // 2

        def of(name: str, which: int = shape) -> Segment:
            return self._segment(name, micro_batch, rank, which)

        order = [_template(layer, recomputed, layers) for layer in range(layers)]
        for which in {which for which, _ in order}:
            if which != COPIED_LAYERS // 2:
                self._require_repeating(micro_batch, rank, which)
        forward = [
            self._numbered(of(f"F{one}", which), one, layer) for layer, (which, one) in enumerate(order)
        ]
        backward = [
            self._numbered(of(f"B{one}", which), one, layer) for layer, (which, one) in enumerate(order)
        ]
        parts = [of("start"), *forward, of("middle"), *reversed(backward)]
        if "end" in self._names(micro_batch, rank, shape):
            parts.append(of("end"))
        return _joined(parts, self.categories)

    def evaluation(self, micro_batch: int, rank: int, layers: int) -> Stream:
        """One evaluation pass; see `stream`."""

        def of(name: str) -> Segment:
            return self._segment(name, micro_batch, rank, None)

        if not of("F1").like(of("F2")):
            raise NotAlike("layers differ in evaluation")
        inner = [of("F1")] * (layers - 2)
        return _joined([of("start"), of("F0"), *inner, of("F3"), of("middle")], self.categories)

    def arrivals(self, layers: int) -> tuple[str, ...]:
        """The order in which a micro batch's gradients arrive, as names of parameters."""
        rank = next(iter(self._traces))
        texts = self.stream(self._low, rank, 0, layers).texts
        return tuple(text.removeprefix("grad ") for text in texts if text.startswith("grad"))

    def _names(self, micro_batch: int, rank: int, shape: int) -> set[str]:
        traces = next(iter(self._traces.values()))
        run = (micro_batch, shape) if (micro_batch, shape) in traces.runs else (self._low, shape)
        return set(traces.runs[run])

    def _numbered(self, segment: Segment, here: int, there: int) -> Segment:
        before, after = f"{self._prefix}{here}.", f"{self._prefix}{there}."
        return segment.renamed(lambda text: text.replace(before, after, 1))

    def _require_repeating(self, micro_batch: int, rank: int, shape: int) -> None:
        for passed in "FB":
            one = self._segment(f"{passed}1", micro_batch, rank, shape)
            two = self._segment(f"{passed}2", micro_batch, rank, shape)
            if not (one.like(self._numbered(two, 2, 1)) and np.array_equal(one.sizes, two.sizes)):
                raise NotAlike("interior layers do not repeat")

    def _segment(self, name: str, micro_batch: int, rank: int, shape: int | None) -> Segment:
        """A segment at any micro batch and rank; `shape` None: of evaluation."""
        key = (name, micro_batch, rank, shape)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._at_rank(name, micro_batch, rank, shape)
        return found

    def _at_rank(self, name: str, micro_batch: int, rank: int, shape: int | None) -> Segment:
        if rank in self._traces:
            return self._at_batch(name, micro_batch, self._traces[rank], shape)
        low, high = sorted(self._traces)[:2]
        return _between(
            self._segment(name, micro_batch, low, shape),
            self._segment(name, micro_batch, high, shape),
            low,
            high,
            rank,
        )

    def _at_batch(self, name: str, micro_batch: int, traces: LayerTraces, shape: int | None) -> Segment:
        def own(batch: int) -> Segment | None:
            run = traces.evaluations.get(batch) if shape is None else traces.runs.get((batch, shape))
            return None if run is None else run.get(name)

        found = own(micro_batch)
        if found is not None:
            return found
        low, high = own(self._low), own(self._high)
        if low is not None and high is not None and low.like(high) and micro_batch > self._high:
            return _between(low, high, self._low, self._high, micro_batch)
        # What is around the layers does not depend on what is recomputed, and may be known at this size.
        if shape and name in ("start", "middle", "end"):
            plain = self._at_batch(name, micro_batch, traces, 0)
            return plain
        raise NotAlike(f"{name} is not known at micro batch {micro_batch}")


def _template(layer: int, recomputed: int, layers: int) -> tuple[int, int]:
    """Which run of the copy, and which of its layers, a layer is like."""
    middle, last = COPIED_LAYERS // 2, COPIED_LAYERS - 1
    if recomputed in (0, layers):
        shape = 0 if recomputed == 0 else COPIED_LAYERS
        return (shape, 0) if layer == 0 else (shape, last) if layer == layers - 1 else (shape, 1)
    if layer == 0:
        return middle, 0
    if layer == layers - 1:
        return middle, last
    if layer == recomputed - 1:
        return middle, middle - 1
    if layer == recomputed:
        return middle, middle
    return (COPIED_LAYERS, 1) if layer < recomputed else (0, 1)


def _between(low: Segment, high: Segment, at_low: int, at_high: int, at: int) -> Segment:
    """Sizes are affine in the micro batch and in the rank, event by event."""
    if not low.like(high):
        raise NotAlike("events differ in more than sizes")
    sizes = low.sizes + (high.sizes - low.sizes) // (at_high - at_low) * (at - at_low)
    if not np.array_equal(np.sign(sizes), np.sign(low.sizes)):
        raise NotAlike("sizes are not affine")
    return replace(low, sizes=sizes)


def _joined(parts: Sequence[Segment], categories: Sequence[str]) -> Stream:
    sizes = np.concatenate([part.sizes for part in parts])
    kinds = np.concatenate([part.kinds for part in parts])
    texts: list[str] = []
    ends: list[int] = []
    before = 0
    for part in parts:
        for where, text in part.marks:
            texts.append(text)
            ends.append(before + where)
        before += len(part.sizes)
    ends.append(before)
    rounded = np.sign(sizes) * (-(-np.abs(sizes) // ROUND_BYTES) * ROUND_BYTES)
    # Everything that is not handed over, and no workspace, must be gone.
    net = np.bincount(kinds, weights=sizes.astype(np.float64), minlength=len(categories))
    for index, name in enumerate(categories):
        if name not in (GRADIENTS, WORKSPACES) and net[index]:
            raise NotAlike(f"{name}: {net[index]:.0f} bytes stay")
    return Stream(sizes, kinds, rounded, tuple(texts), np.asarray(ends))


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
