"""The peaks of a point by phase, however they were found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.events import ROUNDING, STEP_PHASES, Events
from trials.wire import Phase


@dataclass(frozen=True)
class Span:
    """A phase of a trace.

    Attributes:
        name: of the phase.
        step: the optimizer step; -1 outside of steps.
        begin: its first event, or interval.
        end: the one after its last.
    """

    name: str
    step: int
    begin: int
    end: int


@dataclass(frozen=True)
class Figures:
    """Sizes in bytes.

    Attributes:
        phases: largest allocation by phase; `first_step` and `later_step` are whole optimizer steps.
        peak: largest over the optimizer steps.
        where: the event, or interval, of the peak.
        phase: the phase of the peak.
        breakdown: what is allocated at the peak.
    """

    phases: dict[str, int]
    peak: int
    where: int
    phase: str
    breakdown: dict[str, int] = field(default_factory=dict)

    def with_breakdown(self, breakdown: Callable[[int], dict[str, int]]) -> Figures:
        """With what is allocated at the peak."""
        return replace(self, breakdown=breakdown(self.where))


def figures_of_spans(spans: Sequence[Span], levels: NDArray[np.int64]) -> Figures:
    """The peaks of what is allocated.

    Args:
        spans: the phases.
        levels: allocated bytes after each event, or the largest of each interval.
    """
    phases: dict[str, int] = {}
    best, where, phase = 0, 0, str(Phase.FORWARD)
    for span in spans:
        part = levels[span.begin : span.end]
        index = int(part.argmax())
        peak = int(part[index])
        names = [span.name]
        if span.step >= 0:
            names = [span.name] if span.name in ("forward", "backward") else []
            names.append(str(Phase.LATER_STEP if span.step else Phase.FIRST_STEP))
            if peak > best:
                best, where, phase = peak, span.begin + index, span.name
        for name in names:
            phases[name] = max(phases.get(name, 0), peak)
    return Figures(phases, best, where, phase)


def figures_of(events: Events) -> Figures:
    """The peaks of a whole trace."""
    spans = [Span(*span) for span in events.spans]
    return figures_of_spans(spans, events.allocated).with_breakdown(events.breakdown_at)


def breakdown_of(peak: int, *parts: dict[str, int]) -> dict[str, int]:
    """What parts hold together, the largest first; sums to the peak. "" is not a category."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            if name:
                sums[name] = sums.get(name, 0) + size
    ordered = dict(sorted(((n, s) for n, s in sums.items() if s > 0), key=lambda item: -item[1]))
    ordered[ROUNDING] = peak - sum(ordered.values())
    return ordered


def shifted(figures: Figures, neighbour: Figures, changed: Figures) -> Figures:
    """A point's peaks after a change that is known of a neighbour: as it was there, and as it is after it."""
    phases = {
        name: max(0, peak + changed.phases[name] - neighbour.phases[name])
        for name, peak in figures.phases.items()
        if name in neighbour.phases and name in changed.phases
    }
    steps = [peak for name, peak in phases.items() if name in (Phase.FIRST_STEP, Phase.LATER_STEP)]
    peak = max(steps, default=figures.peak)
    # In an order of their own, so that equally large ones always come in the same one.
    names = sorted({*figures.breakdown, *changed.breakdown} - {ROUNDING})
    pieces = {
        name: figures.breakdown.get(name, 0)
        + changed.breakdown.get(name, 0)
        - neighbour.breakdown.get(name, 0)
        for name in names
    }
    pieces = {name: size for name, size in pieces.items() if size > 0}
    total = sum(pieces.values())
    # The peaks need not be at the same moment: what they are made of keeps its proportions.
    scaled = {name: size * peak // total for name, size in pieces.items()} if total else {}
    return Figures(phases, peak, figures.where, figures.phase, breakdown_of(peak, scaled))


assert set(STEP_PHASES) <= {str(phase) for phase in Phase}
