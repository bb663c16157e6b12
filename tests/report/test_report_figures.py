"""The figures hold every trial where it belongs, and are what Plotly takes."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest
from report_studies import BUDGET, GIB, grid, needs, speed

from autotune.report.evidence import Evidence
from autotune.report.figures.budgets import budget_curve
from autotune.report.figures.history import history
from autotune.report.figures.parallel import parallel
from autotune.report.figures.style import hover
from autotune.report.figures.tradeoff import tradeoff

Figure = dict[str, Any]
FIGURES = {"tradeoff": tradeoff, "history": history, "budgets": budget_curve, "parallel": parallel}


def trace(figure: Figure | None, name: str) -> dict[str, Any]:
    assert figure is not None
    (found,) = (one for one in figure["data"] if one["name"] == name)
    return dict(found)


def names(figure: Figure | None) -> list[str]:
    assert figure is not None
    return [one["name"] for one in figure["data"]]


@pytest.mark.parametrize("kind", ["full", "hopeless", "single", "unconfirmed"])
@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure(kind: str, name: str, evidence: dict[str, Evidence]) -> None:
    figure = FIGURES[name](evidence[kind])
    if figure is None:
        assert (kind, name) in {("hopeless", "budgets"), ("single", "parallel"), ("unconfirmed", "parallel")}
        return
    # The page puts colours in the place of their names; Plotly's own checker refuses unknown properties.
    text = json.dumps({key: figure[key] for key in ("data", "layout")})
    for color in ("ink", "muted", "line", "surface", "accent", "gold", "bad", "odd"):
        text = text.replace(f"var(--{color})", "#123456")
    for step in range(1, 6):
        text = text.replace(f"var(--ramp-{step})", "#123456")
    assert "var(" not in text
    go.Figure(json.loads(text))


def test_a_study_without_trials_has_no_figures(evidence: dict[str, Evidence]) -> None:
    assert history(evidence["empty"]) is None and tradeoff(evidence["empty"]) is None
    assert budget_curve(evidence["empty"]) is None and parallel(evidence["empty"]) is None


def test_what_ran_stands_at_what_it_needs_and_an_oom_beyond_the_budget(
    evidence: dict[str, Evidence],
) -> None:
    figure = tradeoff(evidence["full"])
    failures = {"out of memory", "out of host memory", "timed out", "crashed", "loss became NaN"}
    marks = [
        one for one in figure["data"] if one["name"] in {"ran", "stopped early: clearly slower", *failures}
    ]
    assert sum(len(one["x"]) for one in marks) == 24
    ran = trace(figure, "ran")
    points = [p for p in grid() if needs(p) <= BUDGET]
    for x, y in zip(ran["x"], ran["y"], strict=True):
        assert any(abs(needs(p) / GIB - x) < 1e-6 and abs(speed(p) / y - 1) < 0.01 for p in points)
    lost = trace(figure, "out of memory")
    assert len(lost["x"]) == 4 and min(lost["x"]) > 24.0 and lost["yaxis"] == "y2"
    # Short of 12 GiB, which would leave little room for the rest: it stands at 1.5 times the budget.
    assert max(lost["x"]) == 36.0
    assert figure["layout"]["shapes"][0]["x0"] == 24.0
    assert trace(figure, "winner, confirmed")["y"] == [pytest.approx(0.994 * 15000 * 4 / 5.2 * 0.992)]


def test_a_study_that_lost_nothing_has_no_strip_of_failures(evidence: dict[str, Evidence]) -> None:
    for figure in (tradeoff(evidence["single"]), history(evidence["single"])):
        assert figure is not None and "yaxis2" not in figure["layout"]


def test_the_history_has_every_trial_and_the_best_so_far_never_falls(evidence: dict[str, Evidence]) -> None:
    figure = history(evidence["full"])
    marks = [
        one for one in figure["data"] if one["mode"] == "markers" and one["name"] != "the winner's trial"
    ]
    assert sorted(number for one in marks for number in one["x"]) == list(range(1, 25))
    best = trace(figure, "best so far")
    assert best["y"] == sorted(best["y"]) and best["x"] == sorted(best["x"])
    assert best["y"][-1] == pytest.approx(15000 * 4 / 5.2 * 0.992)
    # What was stopped early is not the best of anything: the first trial of the grid was.
    assert best["x"][0] == 3


def test_the_budget_curve_ends_at_the_budget_and_shows_a_predicted_one_beside_it(
    evidence: dict[str, Evidence],
) -> None:
    curve = trace(budget_curve(evidence["full"]), "best measured")
    assert curve["x"][-1] == 24.0 and curve["y"] == sorted(curve["y"])
    both = budget_curve(evidence["full"], [(12 * GIB, 9000.0), (48 * GIB, 14000.0)])
    predicted = trace(both, "predicted")
    assert list(predicted["x"]) == [12.0, 48.0] and list(predicted["y"]) == [9000.0, 14000.0]
    assert both is not None and both["layout"]["xaxis"]["range"][1] > 48.0
    assert "predicted" not in names(budget_curve(evidence["full"]))


def test_parallel_coordinates_draw_each_trial_once_over_the_knobs_that_vary(
    evidence: dict[str, Evidence],
) -> None:
    figure = parallel(evidence["full"])
    assert figure is not None
    titles = [text.replace("<br>", " ") for text in figure["layout"]["xaxis"]["ticktext"]]
    # Accumulation follows from the micro batch, and the rest does not vary.
    assert titles == ["micro batch", "checkpointing", "LoRA rank", "tokens/s"]
    owners: dict[int, int] = {}
    for one in figure["data"]:
        for number, height in zip(one["customdata"], one["y"], strict=True):
            if height is not None:
                owners[number] = owners.get(number, 0) + 1
    assert sorted(owners) == list(range(1, 25))
    failed = [record.position for record in evidence["full"].records if not record.result.tokens_per_second]
    assert all(count == (3 if number in failed else 4) for number, count in owners.items())
    chosen = {one["label"]: one["trials"] for one in figure["highlights"]}
    assert chosen["the winner"] == [17]
    assert len(chosen["LoRA rank: 64"]) == 12 and len(chosen["micro batch: 8"]) == 6


def test_words_of_a_trial_under_the_pointer_are_escaped(evidence: dict[str, Evidence]) -> None:
    (number,) = trace(history(evidence["full"]), "crashed")["customdata"]
    (crashed,) = (record for record in evidence["full"].records if record.position == number)
    assert "<script" not in hover(crashed) and "&lt;/script&gt;" in hover(crashed)


def test_words_of_a_trial_that_ran_again_have_both_speeds(evidence: dict[str, Evidence]) -> None:
    chosen = evidence["full"].chosen
    assert chosen is not None
    words = hover(chosen.record, chosen.confirmation)
    assert "11,446 tok/s, 23.0 GiB" in words and "in its longer run 11,377 tok/s, 23.0 GiB" in words
