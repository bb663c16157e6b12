"""How the search went: every trial in order, the best so far, and what did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.report.figures.style import (
    MARKERS,
    MUTED,
    OUTCOME_WORDS,
    WINNER_MARKER,
    Figure,
    axis,
    hovering,
    scatter,
    speed_figure,
    with_outcome,
)
from autotune.study.judging import RAN
from autotune.winner.ranking import fits, tokens_per_second
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence


def history(evidence: Evidence) -> Figure | None:
    """The figure; None for a study without trials."""
    if not evidence.records:
        return None
    traces = []
    numbers, best = best_so_far(evidence)
    if len(numbers) > 1:
        line = {"shape": "hv", "color": MUTED, "width": 1.5}
        traces.append(scatter("best so far", numbers, best, mode="lines", line=line, hoverinfo="skip"))
    for outcome in Outcome:
        some = with_outcome(evidence.records, outcome)
        if outcome in RAN:
            some = [r for r in some if r.result and r.result.tokens_per_second is not None]
        if not some:
            continue
        ran = outcome in RAN
        traces.append(
            scatter(
                OUTCOME_WORDS[outcome],
                [record.position for record in some],
                [record.result.tokens_per_second if ran and record.result else 0.0 for record in some],
                marker=MARKERS[outcome],
                yaxis="y" if ran else "y2",
                **hovering(some),
            )
        )
    chosen = evidence.chosen
    if chosen is not None and chosen.record.result is not None:
        traces.append(
            scatter(
                "the winner's trial",
                [chosen.record.position],
                [chosen.record.result.tokens_per_second],
                marker=WINNER_MARKER,
                **hovering([chosen.record]),
            )
        )
    last = max(record.position for record in evidence.records)
    x_axis = axis("trial", range=[0.3, last + 0.7], tickformat="d", dtick=1 if last <= 12 else None)
    return speed_figure(traces, x_axis)


def best_so_far(evidence: Evidence) -> tuple[list[int], list[float]]:
    """Trial numbers, as people count them, and the best throughput up to each of what fits and holds."""
    numbers: list[int] = []
    best: list[float] = []
    for record in evidence.records:
        able = fits(record, evidence.budget_bytes) and record.point not in evidence.failed
        speed = tokens_per_second(record) if able else 0.0
        top = max(speed, best[-1] if best else 0.0)
        if top > 0:
            numbers.append(record.position)
            best.append(top)
    return numbers, best
