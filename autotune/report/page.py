"""The page: what is known of a study, put into its templates, which escape all of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autotune import __version__
from autotune.display.words import end_words, memory_of, point_words, size_words, speed_words
from autotune.report.advice import advice_of
from autotune.report.certainty import statements
from autotune.report.contenders import contenders
from autotune.report.figures.budgets import PredictedCurve, budget_curve
from autotune.report.figures.history import history
from autotune.report.figures.parallel import parallel
from autotune.report.figures.style import OUTCOME_WORDS, hover
from autotune.report.figures.tradeoff import tradeoff
from autotune.report.front import card_budgets, front
from autotune.report.knob_words import METHOD_WORDS, knob_words, point_rows, value_words
from autotune.report.memory import drawn, figure_rows, measured_pieces, predicted_pieces
from autotune.report.neighbours import steps_from
from autotune.report.words import counts_words, headline, history_words, nearest_failure, tradeoff_words
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.report.forecast import Forecast

# Nothing is asked of any server, and a browser refuses what would.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def report_page(
    evidence: Evidence, forecast: Forecast | None, *, predicted_curve: PredictedCurve = ()
) -> str:
    """The whole page, as HTML.

    Args:
        evidence: the study.
        forecast: the winner's memory; None where there is no prediction of it.
        predicted_curve: the best throughput predicted for each budget; empty where none was predicted.
    """
    figures = {
        "tradeoff": tradeoff(evidence),
        "history": history(evidence),
        "budgets": budget_curve(evidence, predicted_curve),
        "parallel": parallel(evidence),
    }
    drawable = {name: figure for name, figure in figures.items() if figure is not None}
    template = _environment().get_template("page.html.j2")
    return template.render(
        **_facts(evidence),
        **_evidence_tables(evidence),
        **_memory(evidence, forecast),
        figures=drawable,
        figures_json=Markup(script_json({"figures": drawable, "texts": _texts(evidence)})),
        policy=POLICY,
        css=_static("report.css"),
        script=_static("report.js"),
        plotly=_plotly() if drawable else "",
    )


def script_json(value: Any) -> str:
    """JSON that may stand inside a `script` element: nothing in it can end the element or begin a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _texts(evidence: Evidence) -> dict[int, str]:
    """What is shown of each trial under the pointer, by its number as people count it."""
    both = zip(evidence.records, evidence.effective, strict=True)
    return {
        record.position: hover(record, other.result if other.result != record.result else None)
        for record, other in both
    }


def _facts(evidence: Evidence) -> dict[str, Any]:
    chosen = evidence.chosen
    result = chosen.measured if chosen else None
    needed = memory_of(result) if result else None
    return {
        "evidence": evidence,
        "version": __version__,
        "now": datetime.now(UTC),
        "headline": headline(evidence),
        "counts": counts_words(evidence),
        "winner": chosen,
        "result": result,
        "needed": needed,
        "budget_share": needed / evidence.budget_bytes if needed is not None else None,
        "rows": point_rows(chosen.record.point) if chosen else [],
        "method": METHOD_WORDS[evidence.inputs.method],
        "nearest": nearest_failure(evidence),
        "advice": advice_of(evidence) if chosen is None else None,
        "inputs": evidence.inputs,
        "witness": evidence.witness,
        "failures": sum(
            record.result.tokens_per_second is None for record in evidence.records if record.result
        ),
        "tradeoff_words": tradeoff_words(evidence),
        "history_words": history_words(evidence),
        "ds_config": json.dumps(result.ds_config, indent=2) if result and result.ds_config else "",
    }


def _evidence_tables(evidence: Evidence) -> dict[str, Any]:
    from autotune.samplers.importance import LEAST_TRIALS, knob_importances

    others = contenders(evidence)
    corners = front(evidence.ranked)
    searched = evidence.inputs.global_batch is None
    chosen = evidence.chosen
    return {
        "statements": statements(evidence, others),
        "contenders": others,
        "importances": knob_importances(evidence.records),
        "least_trials": LEAST_TRIALS,
        "steps": steps_from(chosen.record, evidence.records, batch_is_searched=searched) if chosen else [],
        "corners": corners,
        "price_groups": [(knob, list(group)) for knob, group in groupby(evidence.prices, lambda p: p.knob)],
        "cards": card_budgets(corners, evidence.budget_bytes),
    }


def _memory(evidence: Evidence, forecast: Forecast | None) -> dict[str, Any]:
    chosen = evidence.chosen
    pieces = predicted_pieces(forecast.values) if forecast and "breakdown" in forecast.values else ()
    measured = measured_pieces(chosen.measured) if chosen else ()
    measured_bytes = memory_of(chosen.measured) if chosen else None
    predicted_bytes = (forecast.values.get("required_device_bytes") or 0) if forecast else 0
    return {
        # The bars can be compared only if the whole width is the same for both.
        "bar_bytes": max(evidence.budget_bytes, predicted_bytes, measured_bytes or 0),
        "measured_bytes": measured_bytes or 0,
        "forecast": forecast,
        "pieces": pieces,
        "drawn_pieces": drawn(pieces),
        "measured_pieces": measured,
        "figure_rows": figure_rows(forecast, chosen.measured, evidence.inputs.device) if chosen else [],
    }


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("autotune.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": size_words,
        "speed": speed_words,
        "point": point_words,
        "knob": knob_words,
        "memory": memory_of,
        "end": end_words,
        "outcome": lambda outcome: OUTCOME_WORDS[outcome],
        "percent": lambda share: f"{share:.0%}",
        "signed": lambda share: f"{share:+.1%}",
        "signed_size": lambda size: f"{'+' if size > 0 else ''}{format_size(size)}",
        "width": lambda share: f"{100 * min(max(share, 0.0), 1.0):.2f}%",
    }
    environment.globals["value_words"] = value_words
    return environment


def _static(name: str) -> Markup:
    return Markup(files("autotune.report").joinpath("static", name).read_text(encoding="utf-8"))


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs().replace("</script", "<\\/script"))
