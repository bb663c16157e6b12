"""How every figure looks: colours by name, markers by outcome, axes and sizes in one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from autotune.display.words import end_words, memory_of, point_words, size_words, speed_words
from autotune.study import Record
from autotune.study.judging import RAN
from trials.wire import Outcome, TrialResult

Figure = dict[str, Any]

# The page's script puts the colours of the chosen theme in their place.
INK, MUTED, LINE, SURFACE = "var(--ink)", "var(--muted)", "var(--line)", "var(--surface)"
ACCENT, GOLD, BAD, ODD = "var(--accent)", "var(--gold)", "var(--bad)", "var(--odd)"
RAMP = tuple(f"var(--ramp-{step})" for step in range(1, 6))

# Told apart by shape as well as by colour.
MARKERS: dict[Outcome, dict[str, Any]] = {
    Outcome.OK: {"symbol": "circle", "color": ACCENT, "size": 9},
    Outcome.STOPPED: {"symbol": "circle-open", "color": ACCENT, "size": 9},
    Outcome.OOM: {"symbol": "x-thin", "color": BAD, "size": 9, "line": {"width": 2.5, "color": BAD}},
    Outcome.HOST_OOM: {"symbol": "cross-thin", "color": BAD, "size": 9, "line": {"width": 2.5, "color": BAD}},
    Outcome.TIMEOUT: {"symbol": "triangle-up-open", "color": ODD, "size": 9},
    Outcome.CRASH: {"symbol": "diamond-open", "color": ODD, "size": 9},
    Outcome.NAN: {"symbol": "square-open", "color": ODD, "size": 9},
    Outcome.INVALID: {"symbol": "triangle-down-open", "color": ODD, "size": 9},
}
OUTCOME_WORDS = {
    Outcome.OK: "ran",
    Outcome.STOPPED: "stopped early: clearly slower",
    Outcome.OOM: "out of memory",
    Outcome.HOST_OOM: "out of host memory",
    Outcome.TIMEOUT: "timed out",
    Outcome.CRASH: "crashed",
    Outcome.NAN: "loss became NaN",
    Outcome.INVALID: "refused",
}
WINNER_MARKER = {"symbol": "star", "size": 17, "color": GOLD, "line": {"width": 1.2, "color": INK}}
# Where trials without a speed stand: a strip of its own below the figure.
STRIP, ABOVE, WHOLE = (0.0, 0.08), (0.12, 1.0), (0.0, 1.0)


@dataclass(frozen=True)
class Unit:
    """The unit of a memory axis: GiB, or MiB where the budget is small."""

    name: str
    size_bytes: int

    def of(self, size_bytes: float) -> float:
        """A size in this unit."""
        return size_bytes / self.size_bytes


def unit_for(budget_bytes: int) -> Unit:
    """The unit in which a budget is a number of one to four digits."""
    return Unit("GiB", 2**30) if budget_bytes >= 4 * 2**30 else Unit("MiB", 2**20)


def layout(**values: Any) -> dict[str, Any]:
    """A layout with what all figures share."""
    return {
        "font": {"color": INK, "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 62, "r": 14, "t": 34, "b": 52},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": SURFACE, "bordercolor": LINE, "font": {"color": INK}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.01, "xanchor": "left", "yanchor": "bottom"},
        "showlegend": True,
        **values,
    }


def axis(title: str, **values: Any) -> dict[str, Any]:
    """An axis with a title and quiet lines."""
    return {
        "title": {"text": title, "standoff": 10},
        "gridcolor": LINE,
        "linecolor": LINE,
        "zerolinecolor": LINE,
        "automargin": True,
        **values,
    }


def speed_figure(traces: list[dict[str, Any]], x_axis: dict[str, Any], **values: Any) -> Figure:
    """A figure of throughput; trials without one, the traces on `y2`, stand in a strip of their own below.

    Args:
        traces: what is drawn.
        x_axis: the horizontal one.
        values: further parts of the layout.

    Returns:
        The figure; `short` where there is the strip alone, which needs little height.
    """
    failures = any(trace.get("yaxis") == "y2" for trace in traces)
    speeds = any(trace.get("yaxis") != "y2" for trace in traces)
    axes = _axes(x_axis, failures=failures, speeds=speeds)
    return {"data": traces, "layout": layout(**axes, **values), "short": not speeds}


def _axes(x_axis: dict[str, Any], *, failures: bool, speeds: bool) -> dict[str, Any]:
    speed = axis("tokens per second", rangemode="tozero")
    if not failures:
        return {"xaxis": x_axis, "yaxis": speed}
    strip = {
        "domain": list(STRIP if speeds else WHOLE),
        "range": [-1, 1],
        "tickvals": [0],
        "ticktext": ["failed "],
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
    }
    above = {**speed, "domain": list(ABOVE), "visible": speeds}
    return {"xaxis": {**x_axis, "anchor": "y2"}, "yaxis": above, "yaxis2": strip}


def hover(record: Record, longer: TrialResult | None = None) -> str:
    """What is shown of a trial under the pointer; Plotly reads a little HTML, so the words are escaped.

    Args:
        record: the trial.
        longer: its longer run's result, where it has a good one.
    """
    result = record.result
    lines = [f"<b>trial {record.position}</b>", escape(point_words(record.point))]
    if result is not None:
        words = OUTCOME_WORDS[result.outcome]
        if result.outcome in RAN:
            lines.append(f"{speed_words(result.tokens_per_second)}, {size_words(memory_of(result))}")
        end = end_words(result)
        lines.append(escape(f"{words} {end[:80]}".strip()))
    if longer is not None:
        speed, size = speed_words(longer.tokens_per_second), size_words(memory_of(longer))
        lines.append(f"in its longer run {speed}, {size}")
    return "<br>".join(lines)


def with_outcome(records: Sequence[Record], outcome: Outcome) -> list[Record]:
    """The trials that ended so."""
    return [record for record in records if record.result and record.result.outcome is outcome]


def scatter(name: str, x: Sequence[Any], y: Sequence[Any], **values: Any) -> dict[str, Any]:
    """A trace of points, or of what `mode` says."""
    return {"type": "scatter", "mode": "markers", "name": name, "x": list(x), "y": list(y), **values}


def hovering(records: Sequence[Record]) -> dict[str, Any]:
    """The part of a trace that says whose its points are; the page's script finds the words."""
    return of_trials([record.position for record in records])


def of_trials(numbers: Sequence[int]) -> dict[str, Any]:
    """The same by the trials' numbers, as people count them."""
    return {"customdata": list(numbers), "hovertemplate": "%{text}<extra></extra>"}
