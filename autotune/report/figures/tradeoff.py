"""Throughput against memory: every trial, the Pareto front, the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.display.words import memory_of
from autotune.report.figures.style import (
    ABOVE,
    ACCENT,
    MARKERS,
    MUTED,
    OUTCOME_WORDS,
    WINNER_MARKER,
    Figure,
    axis,
    hovering,
    scatter,
    speed_figure,
    unit_for,
    with_outcome,
)
from autotune.report.front import front
from autotune.sizes import format_size
from autotune.study.judging import RAN
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.study import Record

# An out-of-memory that was short of more stands at the edge.
FURTHEST_SHARE = 1.5
# Room beside the budget's line and the last mark.
MARGIN = 1.06


def tradeoff(evidence: Evidence) -> Figure | None:
    """The figure; None where no trial says anything of memory.

    What ran stands at what it needs. What ran out of memory stands in the strip below, at the least that it
    would have needed.
    """
    budget, unit = evidence.budget_bytes, unit_for(evidence.budget_bytes)
    records = evidence.effective
    corners = front(evidence.ranked)
    traces = []
    if len(corners) > 1:
        x, y = [unit.of(c.budget_bytes) for c in corners], [c.tokens_per_second for c in corners]
        line = {"shape": "hv", "color": MUTED, "width": 1.5, "dash": "dot"}
        traces.append(scatter("Pareto front", x, y, mode="lines", line=line, hoverinfo="skip"))
    furthest = float(budget)
    for outcome in Outcome:
        some = [r for r in with_outcome(records, outcome) if least_bytes(r, budget) is not None]
        if not some:
            continue
        sizes = [min(least_bytes(record, budget) or budget, FURTHEST_SHARE * budget) for record in some]
        furthest = max(furthest, *sizes)
        ran = outcome in RAN
        y = [_speed(record) if ran else 0.0 for record in some]
        traces.append(
            scatter(
                OUTCOME_WORDS[outcome],
                [unit.of(size) for size in sizes],
                y,
                marker=MARKERS[outcome],
                yaxis="y" if ran else "y2",
                **hovering(some),
            )
        )
    chosen = evidence.chosen
    if not traces:
        return None
    if chosen is not None and memory_of(chosen.measured) is not None:
        result = chosen.measured
        speed = result.tokens_per_second or 0.0
        low, high = result.tokens_per_second_low or speed, result.tokens_per_second_high or speed
        error = {"type": "data", "symmetric": False, "array": [high - speed], "arrayminus": [speed - low]}
        traces.append(
            scatter(
                "winner" if chosen.confirmation is None else "winner, confirmed",
                [unit.of(memory_of(result) or 0)],
                [speed],
                marker=WINNER_MARKER,
                error_y=error | {"color": ACCENT, "thickness": 1.5},
                **hovering([chosen.record]),
            )
        )
    any_speed = any(trace["yaxis"] == "y" for trace in traces if "yaxis" in trace)
    return speed_figure(
        traces,
        axis(f"device memory it needs, {unit.name}", range=[0, unit.of(furthest * MARGIN)]),
        shapes=[_budget_line(unit.of(budget))],
        annotations=[_budget_words(unit.of(budget), budget, low=not any_speed)],
    )


def _budget_line(x: float) -> dict[str, Any]:
    ends = {"x0": x, "x1": x, "y0": 0, "y1": 1}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": {"color": MUTED, "width": 1.5}}


def _budget_words(x: float, budget_bytes: int, *, low: bool) -> dict[str, Any]:
    """The line's label: along it, from below, for the fast stand at its upper end; across a low figure."""
    place = (
        {"y": 1, "yanchor": "top", "xshift": -4} if low else {"y": ABOVE[0], "yanchor": "bottom", "yshift": 4}
    )
    return {
        "x": x,
        "xref": "x",
        "yref": "paper",
        "text": f"budget {format_size(budget_bytes)}",
        "textangle": 0 if low else -90,
        "showarrow": False,
        "xanchor": "right",
        "font": {"color": MUTED},
        **place,
    }


def least_bytes(record: Record, budget_bytes: int) -> int | None:
    """Where a trial stands on the memory axis; None where nothing is known of it.

    What ran: what it needs. What ran out of device memory: the budget and what it was short of. What ended
    otherwise: what was predicted of it.
    """
    result = record.result
    if result is None:
        return None
    if result.outcome in RAN:
        return memory_of(result) if result.tokens_per_second is not None else None
    if result.outcome is Outcome.OOM:
        return budget_bytes + (result.oom_short_bytes or 0)
    return (record.predicted or {}).get("required_device_bytes")


def _speed(record: Record) -> float:
    return record.result.tokens_per_second or 0.0 if record.result else 0.0
