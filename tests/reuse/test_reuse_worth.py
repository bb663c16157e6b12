"""What a head start was worth is told as it is, also where it was worth nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from reuse_samples import GIB, NOW, SPACE, need_bytes, point, record, speed

from autotune.reuse.virtual import believed, virtual_search
from autotune.reuse.worth import worth_of
from autotune.study import Record
from trials.wire import Outcome

FITTING = {p: speed(p) for p in SPACE if need_bytes(p) <= 24 * GIB}


def in_order(records: object, candidates: list[object]) -> object:
    return candidates[0]


def timed(*speeds: float | None, seconds: float = 30.0) -> list[Record]:
    made = [record(number, point(1), value) for number, value in enumerate(speeds)]
    return [replace(one, finished_at=NOW + timedelta(seconds=seconds)) for one in made]


def test_a_virtual_search_ends_near_the_fastest_and_counts_what_did_not_fit() -> None:
    found = virtual_search(believed(FITTING), in_order, SPACE, 100)
    fastest = max(FITTING.values())
    expected = next(n for n, p in enumerate(SPACE, 1) if FITTING.get(p, 0.0) >= 0.98 * fastest)
    assert found.trials == expected == len(found.records)
    assert found.best == fastest
    outcomes = [r.result.outcome for r in found.records if r.result]
    assert [outcome is Outcome.OK for outcome in outcomes] == [p in FITTING for p in SPACE[:expected]]


def test_a_virtual_search_that_is_too_short_arrives_nowhere() -> None:
    assert virtual_search(believed(FITTING), in_order, SPACE, 1).trials is None
    assert virtual_search(believed({}), in_order, SPACE, 100).trials is None


def test_trials_and_minutes_are_counted_to_within_two_percent_of_the_studys_best() -> None:
    alone = virtual_search(believed(FITTING), in_order, SPACE, 100)
    assert alone.trials is not None
    worth = worth_of(timed(500.0, 985.0, 1000.0), alone)
    assert worth is not None
    # 985 is within 2 % of 1000, and the second trial.
    assert worth.trials_with == 2
    assert worth.trials_saved == alone.trials - 2
    assert worth.minutes_saved == pytest.approx((alone.trials - 2) * 0.5)
    assert "by prediction" in worth.words() and "saved" in worth.words()


def test_a_head_start_that_cost_something_says_so() -> None:
    alone = virtual_search(believed(dict.fromkeys(SPACE, 100.0)), in_order, SPACE, 100)
    worth = worth_of(timed(500.0, None, 1000.0), alone)
    assert worth is not None and worth.trials_saved == -2
    assert "1.0 minutes lost" in worth.words()
    assert worth.as_json()["minutes_saved_predicted"] == -1.0


def test_where_nothing_can_be_said_nothing_is() -> None:
    alone = virtual_search(believed(FITTING), in_order, SPACE, 1)
    assert worth_of(timed(500.0), alone) is None
    arrived = virtual_search(believed(FITTING), in_order, SPACE, 100)
    assert worth_of(timed(None, None), arrived) is None
