"""The budget curve: the best throughput for each budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.report.figures.style import (
    ACCENT,
    MUTED,
    Figure,
    axis,
    hovering,
    layout,
    scatter,
    unit_for,
)
from autotune.report.front import front

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence

PredictedCurve = Sequence[tuple[int, float]]


def budget_curve(evidence: Evidence, predicted: PredictedCurve = ()) -> Figure | None:
    """The figure; None where nothing that ran says what it needs.

    Args:
        evidence: the study; its measured curve ends at its budget.
        predicted: budgets in bytes with the throughput predicted for them, rising; drawn beside it.
    """
    corners = front(evidence.ranked)
    if not corners:
        return None
    furthest = max([evidence.budget_bytes, *(size for size, _ in predicted)])
    unit = unit_for(evidence.budget_bytes)
    x = [unit.of(corner.budget_bytes) for corner in corners]
    y = [corner.tokens_per_second for corner in corners]
    traces = [
        scatter(
            "best measured",
            [*x, unit.of(evidence.budget_bytes)],
            [*y, y[-1]],
            mode="lines",
            line={"shape": "hv", "color": ACCENT, "width": 2.5},
            hoverinfo="skip",
        ),
        scatter(
            "from here on",
            x,
            y,
            marker={"symbol": "circle", "color": ACCENT, "size": 9},
            **hovering([corner.record for corner in corners]),
        ),
    ]
    if predicted:
        sizes, speeds = zip(*predicted, strict=True)
        line = {"shape": "hv", "color": MUTED, "width": 2, "dash": "dash"}
        traces.append(
            scatter("predicted", [unit.of(size) for size in sizes], speeds, mode="lines", line=line)
        )
    return {
        "data": traces,
        "layout": layout(
            xaxis=axis(f"budget, {unit.name}", range=[0, unit.of(1.03 * furthest)]),
            yaxis=axis("tokens per second", rangemode="tozero"),
        ),
    }
