"""Peaks of a point from the engine's part of one trace and the model's part of others.

What the model allocates does not depend on DeepSpeed's settings, and what DeepSpeed allocates does not depend
on the batch, checkpointing or fused kernels. They meet at marks: phases, and the arrival of each gradient at
its parameter. Between two marks the engine's events come first; so allocated memory at any moment is a sum of
the two parts', and its peaks follow from each part's peaks between marks, without the events themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.allocator import ROUND_BYTES
from autotune.prediction.events import Events
from autotune.prediction.figures import Figures, Span, breakdown_of, figures_of_spans
from autotune.prediction.segments import GRADIENTS, WORKSPACES, NotAlike, Stream

STEP_MARK = "phase step"


@dataclass(frozen=True)
class Between:
    """A model's part, by interval between marks.

    Attributes:
        stream: its events.
        categories: names of their kinds.
        largest: most allocated in the interval after each mark, since the part began.
        last: allocated at that interval's end.
        last_before: allocated at its beginning.
        plain_largest: the same with workspaces that are already there.
        plain_last: see above.
        plain_last_before: see above.
    """

    stream: Stream
    categories: tuple[str, ...]
    largest: NDArray[np.int64]
    last: NDArray[np.int64]
    last_before: NDArray[np.int64]
    plain_largest: NDArray[np.int64]
    plain_last: NDArray[np.int64]
    plain_last_before: NDArray[np.int64]

    @classmethod
    def of(cls, stream: Stream, categories: tuple[str, ...]) -> Between:
        """The intervals of a stream."""
        plain = stream.rounded
        if WORKSPACES in categories:
            plain = np.where(stream.kinds == categories.index(WORKSPACES), 0, plain)
        return cls(
            stream, categories, *_intervals(stream.rounded, stream.ends), *_intervals(plain, stream.ends)
        )

    def held(self, event: int, *, plain: bool) -> dict[str, int]:
        """Requested bytes by category after so many events, and under "" their allocated sum."""
        kinds = self.stream.kinds[:event]
        sizes, rounded = self.stream.sizes[:event], self.stream.rounded[:event]
        if plain and WORKSPACES in self.categories:
            keep = kinds != self.categories.index(WORKSPACES)
            kinds, sizes, rounded = kinds[keep], sizes[keep], rounded[keep]
        sums = np.bincount(kinds, weights=sizes.astype(np.float64), minlength=len(self.categories))
        found = {name: int(sums[index]) for index, name in enumerate(self.categories) if sums[index]}
        found[""] = int(rounded.sum())
        return found

    def peak_event(self, interval: int, *, plain: bool) -> int:
        """How many events there were at the peak of an interval."""
        rounded = self.stream.rounded
        if plain and WORKSPACES in self.categories:
            rounded = np.where(self.stream.kinds == self.categories.index(WORKSPACES), 0, rounded)
        begin, end = self.stream.ends[interval], self.stream.ends[interval + 1]
        levels = np.concatenate([[0], np.cumsum(rounded[begin:end])])
        return int(begin + levels.argmax())


def _intervals(
    rounded: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    levels = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(rounded)])
    last = levels[ends[1:]]
    largest = np.maximum(np.maximum.reduceat(levels, ends[:-1]), last)
    return largest, last, levels[ends[:-1]]


class EnginePart:
    """What DeepSpeed allocates for a point: the trace of a skeleton, by interval between marks.

    Args:
        events: what `trials.tracing.skeleton` recorded.
    """

    def __init__(self, events: Events) -> None:
        assert events.origins is not None and events.handed is not None
        self.events = events
        births = np.arange(len(events.ids))
        freed = np.flatnonzero(events.ids < 0)
        births[freed] = events.births[-events.ids[freed]]
        handed = np.zeros(len(events.births), dtype=np.bool_)
        handed[events.handed] = True
        is_handed = handed[np.abs(events.ids)] & (events.ids < 0)
        counts = (events.origins[births] == 0) | is_handed
        counts &= (events.streams[births] >= 0) & (events.ids != 0)
        sign = np.sign(events.ids).astype(np.int64)
        self._sizes = np.where(counts, sign * events.sizes[births], 0)
        self._rounded = sign * -(-np.abs(self._sizes) // ROUND_BYTES) * ROUND_BYTES
        self._rounded[~counts] = 0
        self._kinds = events.kinds[births].copy()
        self.categories = list(events.categories)
        if GRADIENTS not in self.categories:
            self.categories.append(GRADIENTS)
        self._kinds[is_handed] = self.categories.index(GRADIENTS)
        marks = [(i, t) for i, t in events.marks if t.startswith(("phase", "step", "grad", "end"))]
        self.texts = [_named(text, events.parameters) for _, text in marks]
        self._positions = np.asarray([index for index, _ in marks])
        self._levels = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self._rounded)])
        ends = np.concatenate([self._positions, [len(self._rounded)]])
        self.last = self._levels[ends[1:]]
        self.largest = np.maximum(np.maximum.reduceat(self._levels, ends[:-1]), self.last)
        self._ends = ends

    @cached_property
    def micro_batches(self) -> list[tuple[int, int]]:
        """Each micro batch's first interval and the one after its last."""
        found = []
        for index, text in enumerate(self.texts):
            if text == "phase forward":
                begin = index
            elif text == STEP_MARK:
                found.append((begin, index + 1))
        return found

    @cached_property
    def spans(self) -> list[Span]:
        """Phases as intervals; see `Events.spans`."""
        position = {int(where): index for index, where in enumerate(self._positions)}
        total = len(self._positions)
        return [
            Span(name, step, position[begin], position.get(end, total))
            for name, step, begin, end in self.events.spans
        ]

    def held(self, interval: int, *, at_peak: bool) -> dict[str, int]:
        """Requested bytes by category at an interval's end or its peak, and under "" their allocated sum."""
        begin, end = int(self._ends[interval]), int(self._ends[interval + 1])
        if at_peak:
            end = begin + int(self._levels[begin : end + 1].argmax())
        sums = np.bincount(
            self._kinds[:end], weights=self._sizes[:end].astype(np.float64), minlength=len(self.categories)
        )
        found = {name: int(sums[index]) for index, name in enumerate(self.categories) if sums[index]}
        found[""] = int(self._levels[end])
        return found

    def index_of(self, text: str) -> int:
        """The first interval that begins with a mark."""
        return self.texts.index(text)


def _named(text: str, parameters: Sequence[str]) -> str:
    word, _, rest = text.partition(" ")
    if word == "grad":
        return f"grad {parameters[int(rest)]}"
    return STEP_MARK if word == "phase" and rest.endswith("_step") else text


@dataclass(frozen=True)
class Setup:
    """Loading and starting another base under the same adapters: quantised instead of not.

    Attributes:
        load: its own trace, with no steps; starting counts in it where `whole`.
        whole: whether the engine's start depends on the base (ZeRO-3), so that it is the trace's own.
    """

    load: EnginePart
    whole: bool

    @property
    def anchor(self) -> str:
        """The mark from which on both do the same."""
        return "phase forward" if self.whole else "phase start"


def composed(engine: EnginePart, model: Between, evaluation: Between, setup: Setup | None = None) -> Figures:
    """The peaks of a point.

    Args:
        engine: its engine's part, with a first and a last micro batch in a step, or one that is both.
        model: one micro batch of its model's part.
        evaluation: an evaluation pass.
        setup: where the base is loaded in another way than in `engine`.

    Raises:
        NotAlike: the two parts do not meet.
    """
    texts = list(model.stream.texts)
    base = np.zeros(len(engine.texts), dtype=np.int64)
    top_engine, top_model = engine.largest.copy(), np.full(len(engine.texts), -1, dtype=np.int64)
    carried = 0
    offsets: list[int] = []
    for number, (begin, end) in enumerate(engine.micro_batches):
        if engine.texts[begin:end] != texts:
            raise NotAlike("gradients arrive in another order")
        plain = number > 0
        largest = model.plain_largest if plain else model.largest
        last = model.plain_last if plain else model.last
        before = model.plain_last_before if plain else model.last_before
        offsets.append(carried)
        top_engine[begin:end] += before + carried
        top_model[begin:end] = engine.last[begin:end] + largest + carried
        carried += int(last[-1])
        following = engine.micro_batches[number + 1][0] if number + 1 < len(engine.micro_batches) else None
        top_engine[end:following] += carried
    evaluated = engine.index_of("phase evaluation")
    top_model[evaluated] = engine.last[evaluated] + int(evaluation.plain_largest.max()) + carried
    top_engine += base
    top = np.maximum(top_engine, top_model)
    shift: dict[str, int] = {}
    if setup is not None:
        top, shift = _with_setup(engine, setup, top)
    figures = figures_of_spans(engine.spans, top)
    return figures.with_breakdown(
        lambda interval: breakdown_of(
            int(top[interval]),
            *_held(engine, model, interval, offsets, bool(top_engine[interval] >= top_model[interval])),
            shift,
        )
    )


def _with_setup(
    engine: EnginePart, setup: Setup, top: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Every interval's top over another base, and by how much its categories differ."""
    other = setup.load
    here = engine.index_of(setup.anchor) - 1
    there = (other.index_of(setup.anchor) if setup.anchor in other.texts else other.index_of("end")) - 1
    ours, theirs = engine.held(here, at_peak=False), other.held(there, at_peak=False)
    shift = {name: theirs.get(name, 0) - ours.get(name, 0) for name in {*ours, *theirs}}
    moved = top + shift[""]
    for text in ("phase load", "phase start"):
        if text == "phase load" or setup.whole:
            moved[engine.index_of(text)] = other.largest[other.index_of(text)]
    return moved, shift


def _held(
    engine: EnginePart, model: Between, interval: int, offsets: Sequence[int], by_engine: bool
) -> tuple[dict[str, int], ...]:
    """What is held at the top of an interval, in parts: the engine's, earlier micro batches', this one's."""
    parts = [engine.held(interval, at_peak=by_engine)]
    for number, (begin, end) in enumerate(engine.micro_batches):
        plain = number > 0
        if interval >= end:
            parts.append(model.held(len(model.stream.sizes), plain=plain))
        elif interval >= begin:
            at = (
                int(model.stream.ends[interval - begin])
                if by_engine
                else model.peak_event(interval - begin, plain=plain)
            )
            parts.append(model.held(at, plain=plain))
    return tuple(parts)
