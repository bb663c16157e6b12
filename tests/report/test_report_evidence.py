"""Front, neighbours, contenders and pieces: what the report's tables are made of."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
from report_studies import BUDGET, GIB, WINNER, add, evidence_of, good, grid, new_study, speed

from autotune.report.contenders import contenders
from autotune.report.evidence import Evidence
from autotune.report.forecast import Forecast, forecast_of
from autotune.report.front import best_at, card_budgets, front
from autotune.report.memory import drawn, figure_rows, measured_pieces, predicted_pieces
from autotune.report.neighbours import steps_from
from autotune.report.page import report_page
from autotune.winner.ranking import tokens_per_second
from trials.wire import Outcome


def test_the_front_is_what_nothing_beats_in_both(evidence: dict[str, Evidence]) -> None:
    records = evidence["full"].ranked
    sizes = {record.number: record.result.required_device_bytes or 0 for record in records if record.result}
    beaten = {
        one.number
        for one, other in product(records, records)
        if sizes[other.number] <= sizes[one.number]
        and tokens_per_second(other) >= tokens_per_second(one)
        and other.number != one.number
    }
    corners = front(records)
    assert {corner.record.number for corner in corners} == {r.number for r in records} - beaten
    assert [corner.budget_bytes for corner in corners] == sorted(c.budget_bytes for c in corners)


def test_a_smaller_budget_gets_the_best_that_fits_it(evidence: dict[str, Evidence]) -> None:
    corners = front(evidence["full"].ranked)
    for size, corner in card_budgets(corners, BUDGET):
        fitting = [r for r in evidence["full"].ranked if (r.result.required_device_bytes or 0) <= size]
        assert corner.tokens_per_second == max(map(tokens_per_second, fitting))
    assert [size // GIB for size, _ in card_budgets(corners, BUDGET)] == [12, 16, 20, 24]
    assert best_at(corners, 4 * GIB) is None


def test_one_step_from_the_winner_is_one_knob_and_compared_with_its_own_trial(
    evidence: dict[str, Evidence],
) -> None:
    full = evidence["full"]
    assert full.chosen is not None
    steps = steps_from(full.chosen.record, full.records, batch_is_searched=False)
    seen = {(step.knob, step.after): step for step in steps}
    # Micro batch 1, 2 and 8 (whose accumulation follows), half and all layers, rank 64.
    assert set(seen) == {
        ("micro_batch_size", 1),
        ("micro_batch_size", 2),
        ("micro_batch_size", 8),
        ("checkpoint_fraction", 0.5),
        ("checkpoint_fraction", 1.0),
        ("lora_rank", 64),
    }
    # Half of the layers recomputed: 0.125 of the speed, 4 sequences x 16 layers x 0.09 GiB.
    half = seen["checkpoint_fraction", 0.5]
    assert half.speed_change == pytest.approx(-0.125)
    assert (half.memory_change_bytes or 0) / GIB == pytest.approx(-5.76, abs=1e-6)
    lost = seen["micro_batch_size", 8]
    assert lost.speed_change is None and lost.record.result.outcome is Outcome.OOM


def test_with_a_searched_batch_the_accumulation_is_a_knob_of_its_own(evidence: dict[str, Evidence]) -> None:
    full = evidence["full"]
    assert full.chosen is not None
    knobs = {step.knob for step in steps_from(full.chosen.record, full.records, batch_is_searched=True)}
    assert knobs == {"checkpoint_fraction", "lora_rank"}


def test_what_was_near_says_why_it_did_not_win(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    rank_64 = WINNER.model_copy(update={"lora_rank": 64})
    slower = WINNER.model_copy(update={"micro_batch_size": 2, "gradient_accumulation_steps": 16})
    far = WINNER.model_copy(update={"micro_batch_size": 1, "gradient_accumulation_steps": 32})
    add(study, WINNER, good(WINNER, tokens_per_second=10_000.0))
    # Half a percent slower is no difference, and a higher rank gives up less.
    add(study, rank_64, good(rank_64, tokens_per_second=9_950.0))
    add(study, slower, good(slower, tokens_per_second=9_200.0))
    add(study, far, good(far, tokens_per_second=5_000.0))
    evidence = evidence_of(study, tmp_path)
    assert evidence.chosen is not None and evidence.chosen.record.point == rank_64
    found = contenders(evidence)
    assert [one.record.point for one in found] == [WINNER, slower]
    assert found[0].tied and found[0].why == "as fast within the noise; the winner trains more parameters"
    assert not found[1].tied and found[1].why == "7.5% slower"


def test_the_pieces_of_a_prediction_sum_to_what_is_needed(evidence: dict[str, Evidence]) -> None:
    forecast = forecast_of(evidence["full"], lambda _: None)
    assert forecast is not None and forecast.comparable
    pieces = predicted_pieces(forecast.values)
    assert sum(piece.size_bytes for piece in pieces) == forecast.values["required_device_bytes"]
    assert sum(piece.share for piece in pieces) == pytest.approx(1.0)
    assert {piece.name: piece.size_bytes for piece in pieces}["weights"] == 8 * GIB


def test_the_measured_pieces_sum_to_what_was_measured(evidence: dict[str, Evidence]) -> None:
    chosen = evidence["full"].chosen
    assert chosen is not None
    pieces = measured_pieces(chosen.measured)
    assert sum(piece.size_bytes for piece in pieces) == chosen.measured.required_device_bytes


def test_many_pieces_are_drawn_as_the_largest_and_the_rest(evidence: dict[str, Evidence]) -> None:
    values = dict(forecast_of(evidence["full"], lambda _: None).values)
    values["breakdown"] = {f"piece {index}": 2**30 + index for index in range(12)}
    values["peak_allocated_bytes"] = sum(values["breakdown"].values())
    values["required_device_bytes"] = values["peak_allocated_bytes"] + values["outside_allocator_bytes"]
    pieces = predicted_pieces(values)
    assert len(pieces) == 13 and len(drawn(pieces)) == 8
    assert sum(p.size_bytes for p in drawn(pieces)) == values["required_device_bytes"]
    assert drawn(pieces)[-1].name == "the rest"


def test_a_prediction_is_compared_only_where_it_counts_the_same(evidence: dict[str, Evidence]) -> None:
    chosen, forecast = evidence["full"].chosen, forecast_of(evidence["full"], lambda _: None)
    assert chosen is not None and forecast is not None
    rows = {row.name: row for row in figure_rows(forecast, chosen.measured)}
    # Half a percent of 20.9 GiB too much, which is a little less of all that is needed.
    assert rows["allocated in training steps"].off == pytest.approx(0.005, abs=1e-6)
    assert 0.004 < (rows["needed: the smallest budget"].off or 0) < 0.005
    elsewhere = Forecast(forecast.values, False, "predicted for a GPU")
    assert all(row.off is None for row in figure_rows(elsewhere, chosen.measured))
    assert figure_rows(None, chosen.measured)[0].predicted_bytes is None


def test_a_winner_without_a_prediction_anywhere_has_no_forecast(evidence: dict[str, Evidence]) -> None:
    said: list[str] = []
    assert forecast_of(evidence["single"], said.append) is None
    assert said == ["the winner's memory cannot be predicted here (the study does not hold its model)"]
    assert forecast_of(evidence["empty"], said.append) is None


def test_the_longer_run_counts_where_there_is_one(evidence: dict[str, Evidence]) -> None:
    full = evidence["full"]
    best = max((p for p in grid() if good(p).required_device_bytes <= BUDGET), key=speed)
    (effective,) = (record for record in full.effective if record.point == best)
    assert tokens_per_second(effective) == pytest.approx(0.994 * speed(best))
    (own,) = (record for record in full.records if record.point == best)
    assert tokens_per_second(own) == pytest.approx(speed(best))


def test_a_speed_that_is_no_number_is_none_and_the_page_is_made(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    add(study, WINNER, good(WINNER))
    odd = WINNER.model_copy(update={"lora_rank": 32})
    add(study, odd, good(odd, tokens_per_second=math.inf, tokens_per_second_low=math.nan))
    evidence = evidence_of(study, tmp_path)
    assert evidence.records[1].result is not None and evidence.records[1].result.tokens_per_second is None
    assert "trial-2" in report_page(evidence, None)
