"""The model's part of a step, for any micro batch, rank and checkpointed share, from traced segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.prediction.allocator import ROUND_BYTES
from autotune.prediction.segments import (
    COPIED_LAYERS,
    GRADIENTS,
    WORKSPACES,
    LayerTraces,
    NotAlike,
    Segment,
    Stream,
)


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
        if low is None or high is None or micro_batch <= self._high:
            raise NotAlike(f"{name} is not known at micro batch {micro_batch}")
        between = _between(low, high, self._low, self._high, micro_batch)
        if shape and name == "middle" and (micro_batch, 0) in traces.runs:
            plain = self._at_batch(name, micro_batch, traces, 0)
            affine = _between(
                traces.runs[self._low, 0][name],
                traces.runs[self._high, 0][name],
                self._low,
                self._high,
                micro_batch,
            )
            between = _as_measured(between, affine, plain)
        return between


def _as_measured(segment: Segment, affine: Segment, measured: Segment) -> Segment:
    """A segment whose sizes that are not affine (a loss in chunks) are those of a run of the same size.

    Args:
        segment: extrapolated.
        affine: the other run's segment, extrapolated in the same way.
        measured: and as it was.
    """
    if not affine.like(measured):
        raise NotAlike("events differ in more than sizes")
    sizes = segment.sizes.copy()
    for index in np.flatnonzero(affine.sizes != measured.sizes):
        same = (segment.sizes == affine.sizes[index]) & (segment.kinds == affine.kinds[index])
        sizes[same] = measured.sizes[index]
    return replace(segment, sizes=sizes)


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
