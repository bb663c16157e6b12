"""A trace as the controller holds it, and what follows from it without replaying the allocator.

With expandable segments every block is exactly its request rounded to 512 bytes, so that allocated memory
is a sum; only reserved memory depends on where blocks lie.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.allocator import ROUND_BYTES

HOST_STREAM = -1
PINNED_STREAM = -2
MANAGED_STREAM = -3

ROUNDING = "allocator's rounding"


@dataclass(frozen=True)
class Events:
    """What one trial allocates and frees, in order; see `trials.tracing.tracer.Trace` for the fields."""

    ids: NDArray[np.int32]
    sizes: NDArray[np.int64]
    streams: NDArray[np.int8]
    kinds: NDArray[np.int16]
    markers: tuple[str, ...]
    categories: tuple[str, ...]
    trainable_parameters: int
    total_parameters: int
    origins: NDArray[np.int8] | None = None
    handed: NDArray[np.int32] | None = None
    parameters: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    layer_prefix: str = ""

    @classmethod
    def read(cls, path: Path) -> Events:
        """Read what `trials.tracing.storing.write_trace` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(stored["about"].tobytes().decode())
            return cls(
                ids=stored["ids"],
                sizes=stored["sizes"],
                streams=stored["streams"],
                kinds=stored["kinds"],
                markers=tuple(about["markers"]),
                categories=tuple(about["categories"]),
                trainable_parameters=about["trainable_parameters"],
                total_parameters=about["total_parameters"],
                origins=stored["origins"],
                handed=stored["handed"],
                parameters=tuple(about["parameters"]),
                layers=tuple(about["layers"]),
                layer_prefix=about["layer_prefix"],
            )

    @cached_property
    def marks(self) -> list[tuple[int, str]]:
        """Each marker's event index and text."""
        where = np.flatnonzero(self.ids == 0)
        return [(int(i), self.markers[int(self.sizes[i])]) for i in where]

    @cached_property
    def births(self) -> NDArray[np.int64]:
        """Event index of each block's allocation, by id; 0 for an id that is not used."""
        table = np.zeros(int(self.ids.max(initial=0)) + 1, dtype=np.int64)
        where = np.flatnonzero(self.ids > 0)
        table[self.ids[where]] = where
        return table

    @cached_property
    def deaths(self) -> NDArray[np.int64]:
        """Event index of each block's end, by id; the number of events for one that stays."""
        table = np.full(int(self.ids.max(initial=0)) + 1, len(self.ids), dtype=np.int64)
        where = np.flatnonzero(self.ids < 0)
        table[-self.ids[where]] = where
        return table

    @cached_property
    def allocated(self) -> NDArray[np.int64]:
        """Allocated device bytes after each event, with expandable segments."""
        return np.cumsum(self._deltas())

    def _deltas(self) -> NDArray[np.int64]:
        rounded = np.maximum(-(-self.sizes // ROUND_BYTES), 1) * ROUND_BYTES
        delta = np.where((self.ids > 0) & (self.streams >= 0), rounded, 0)
        freed = np.flatnonzero(self.ids < 0)
        delta[freed] = -delta[self.births[-self.ids[freed]]]
        return delta

    @cached_property
    def host_peaks(self) -> tuple[int, int]:
        """The most host memory before the first optimizer step, and from there on, in bytes."""
        from autotune.prediction.host import host_peaks

        return host_peaks(self)

    @cached_property
    def managed_bytes(self) -> int:
        """Bytes of memory that moves between host and device as it is used."""
        return int(self.sizes[(self.ids > 0) & (self.streams == MANAGED_STREAM)].sum())

    @cached_property
    def spans(self) -> list[tuple[str, int, int, int]]:
        """Phases as (name, step, first event, event after the last); step is -1 outside training steps."""
        spans: list[tuple[str, int, int, int]] = []
        step, name, begun = -1, "", 0
        for index, text in [*self.marks, (len(self.ids), "end")]:
            word, _, rest = text.partition(" ")
            if word in ("phase", "step", "end"):
                if name and index > begun:
                    spans.append((name, step if name in STEP_PHASES else -1, begun, index))
                name, begun = (rest, index) if word == "phase" else ("", index)
                if word == "step":
                    step = int(rest)
        return spans

    @cached_property
    def training(self) -> Events:
        """The events up to the end of the training steps, without evaluation and saving."""
        for index, text in self.marks:
            if text in ("phase evaluation", "phase saving"):
                return replace(
                    self,
                    ids=self.ids[:index],
                    sizes=self.sizes[:index],
                    streams=self.streams[:index],
                    kinds=self.kinds[:index],
                )
        return self

    def peak_of(self, begin: int, end: int) -> tuple[int, int]:
        """The largest allocation in a span of events and the event it is reached at."""
        part = self.allocated[begin:end]
        where = int(part.argmax())
        return int(part[where]), begin + where

    def breakdown_at(self, index: int) -> dict[str, int]:
        """What is allocated after an event, by category, in bytes; sums to `allocated[index]`."""
        alive = (self.births <= index) & (self.deaths > index)
        alive[0] = False
        where = self.births[alive]
        where = where[(self.ids[where] > 0) & (self.streams[where] >= 0)]
        sizes = self.sizes[where]
        sums = np.bincount(
            self.kinds[where], weights=sizes.astype(np.float64), minlength=len(self.categories)
        )
        named = {name: int(sums[i]) for i, name in enumerate(self.categories) if sums[i] > 0}
        ordered = dict(sorted(named.items(), key=lambda item: -item[1]))
        ordered[ROUNDING] = int(self.allocated[index]) - int(sizes.sum())
        return ordered

    def same_shape(self, other: Events) -> bool:
        """Whether two traces are the same events, with other sizes."""
        return (
            len(self.ids) == len(other.ids)
            and self.markers == other.markers
            and bool(np.array_equal(self.ids, other.ids))
            and bool(np.array_equal(self.streams, other.streams))
        )


# Phases that lie inside an optimizer step.
STEP_PHASES = ("forward", "backward", "first_step", "later_step")


def extrapolated(low: Events, high: Events, at_low: int, at_high: int, at: int) -> Events | None:
    """The trace at another micro batch, or rank, each event affine in it; None where they are not alike.

    Sizes are affine because every tensor's extent is, or is independent of, the number of sequences; the same
    holds for the rank of adapters.
    """
    if not low.same_shape(high):
        return None
    span, distance = at_high - at_low, at - at_low
    slope = (high.sizes - low.sizes) // span
    sizes = low.sizes + slope * distance
    markers = low.ids == 0
    sizes[markers] = low.sizes[markers]
    if bool((sizes[low.ids > 0] < 0).any()):
        return None
    return replace(
        low,
        sizes=sizes,
        trainable_parameters=low.trainable_parameters
        + (high.trainable_parameters - low.trainable_parameters) // span * distance,
        total_parameters=low.total_parameters
        + (high.total_parameters - low.total_parameters) // span * distance,
    )
