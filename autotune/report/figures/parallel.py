"""All trials at once, as parallel coordinates: one line a trial, one axis a knob, throughput last.

Lines of ordinary traces, not Plotly's `parcoords`: that needs WebGL, which browsers without a GPU no longer
have, and cannot be used without a mouse. The page's script dims what is not chosen in a list instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from autotune.report.figures.style import (
    BAD,
    INK,
    MUTED,
    ODD,
    RAMP,
    SURFACE,
    Figure,
    layout,
    of_trials,
    scatter,
)
from autotune.report.knob_words import short_words, value_words
from autotune.report.neighbours import differing_knobs
from autotune.space.fields import point_fields
from autotune.winner.ranking import tokens_per_second
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.study import Record

SPEED = "tokens/s"
LEAST_AXES = 2


@dataclass(frozen=True)
class Axis:
    """A knob that varies, with its values from the bottom up."""

    knob: str
    values: tuple[Any, ...]

    def height(self, value: Any) -> float:
        """Where a value stands, from 0 to 1."""
        return self.values.index(value) / (len(self.values) - 1)


def axes_of(evidence: Evidence) -> list[Axis]:
    """The knobs that vary over the trials, in the order of declaration."""
    points = [record.point for record in evidence.records]
    searched = evidence.inputs.global_batch is None
    varying = {
        knob for point in points for knob in differing_knobs(points[0], point, batch_is_searched=searched)
    }
    found = []
    for knob, field in point_fields().items():
        if knob in varying:
            values = {getattr(point, knob) for point in points}
            found.append(Axis(knob, tuple(sorted(values, key=field.order))))
    return found


def parallel(evidence: Evidence) -> Figure | None:
    """The figure; None where fewer than two knobs vary.

    Beside Plotly's own keys it has `highlights`: what can be chosen, each with the numbers of its trials.
    """
    axes = axes_of(evidence)
    if len(axes) < LEAST_AXES:
        return None
    fastest = max((tokens_per_second(record) for record in evidence.records), default=0.0)
    groups: dict[str, list[Record]] = {}
    for record in evidence.records:
        groups.setdefault(_group(record, fastest), []).append(record)
    traces = []
    for name, color, dash in _kinds(fastest):
        if name in groups:
            traces.append(_lines(name, color, dash, groups[name], axes, fastest))
    columns = len(axes) + (1 if fastest else 0)
    titles = [short_words(axis.knob) for axis in axes] + ([SPEED] if fastest else [])
    return {
        "data": traces,
        "layout": layout(
            margin={"l": 46, "r": 62, "t": 58, "b": 18},
            xaxis={
                "range": [-0.25, columns - 1 + 0.25],
                "tickvals": list(range(columns)),
                "ticktext": [title.replace(" ", "<br>") for title in titles],
                "side": "top",
                "gridcolor": MUTED,
                "zeroline": False,
                "fixedrange": True,
                "tickangle": 0,
            },
            yaxis={"visible": False, "range": [-0.08, 1.08], "fixedrange": True},
            legend={"orientation": "h", "x": 0, "y": -0.02, "xanchor": "left", "yanchor": "top"},
            annotations=_labels(axes, fastest),
        ),
        "highlights": _highlights(evidence, axes),
    }


def _kinds(fastest: float) -> list[tuple[str, str, str]]:
    """Names, colours and dashes of the groups, slow to fast, so that the fast lie on top."""
    ramp = [(_share_words(step), RAMP[step], "solid") for step in range(len(RAMP))] if fastest else []
    return [("other failures", ODD, "dot"), ("out of memory", BAD, "dot"), *ramp]


def _share_words(step: int) -> str:
    width = 100 // len(RAMP)
    return f"{step * width} to {(step + 1) * width}% of the fastest"


def _group(record: Record, fastest: float) -> str:
    result = record.result
    assert result is not None
    if result.outcome in (Outcome.OOM, Outcome.HOST_OOM):
        return "out of memory"
    if result.tokens_per_second is None or not fastest:
        return "other failures"
    share = min(result.tokens_per_second / fastest, 1.0)
    return _share_words(min(int(share * len(RAMP)), len(RAMP) - 1))


def _lines(
    name: str, color: str, dash: str, records: list[Record], axes: list[Axis], fastest: float
) -> dict[str, Any]:
    """One trace for a whole group: lines with a gap after each trial; `customdata` says whose a vertex is."""
    x: list[float | None] = []
    y: list[float | None] = []
    numbers: list[int] = []
    for record in records:
        heights: list[float | None] = [axis.height(getattr(record.point, axis.knob)) for axis in axes]
        speed = record.result.tokens_per_second if record.result else None
        if speed is not None and fastest:
            heights.append(min(speed / fastest, 1.0))
        heights.append(None)
        x += [*map(float, range(len(heights) - 1)), None]
        y += heights
        numbers += [record.position] * len(heights)
    return scatter(
        name,
        x,
        y,
        mode="lines",
        line={"color": color, "dash": dash, "width": 2},
        **of_trials(numbers),
    )


def _labels(axes: list[Axis], fastest: float) -> list[dict[str, Any]]:
    labels = [
        (column, axis.height(value), escape(value_words(axis.knob, value)))
        for column, axis in enumerate(axes)
        for value in axis.values
    ]
    if fastest:
        labels += [(len(axes), share, f"{share * fastest:,.0f}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return [
        {
            "x": column,
            "y": height,
            "text": text,
            "showarrow": False,
            "xanchor": "center",
            "bgcolor": SURFACE,
            "opacity": 0.9,
            "borderpad": 1,
            "font": {"color": INK, "size": 11},
        }
        for column, height, text in labels
    ]


def _highlights(evidence: Evidence, axes: list[Axis]) -> list[dict[str, Any]]:
    found = []
    if evidence.chosen is not None:
        found.append({"label": "the winner", "trials": [evidence.chosen.record.position]})
    top = sorted(evidence.records, key=tokens_per_second, reverse=True)[: max(3, len(evidence.records) // 10)]
    fast = [record.position for record in top if tokens_per_second(record) > 0]
    if len(fast) > 1:
        found.append({"label": f"the {len(fast)} fastest", "trials": fast})
    for axis in axes:
        for value in axis.values:
            numbers = [r.position for r in evidence.records if getattr(r.point, axis.knob) == value]
            label = f"{short_words(axis.knob)}: {value_words(axis.knob, value)}"
            found.append({"label": label, "trials": numbers})
    return found
