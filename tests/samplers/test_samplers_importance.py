"""Importance says which knobs separate the fast trials from the rest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autotune.samplers.importance import LEAST_TRIALS, knob_importances
from autotune.study import Record
from trials.wire import Outcome, Phase, Point, TrialResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(number: int, point: Point, speed: float | None) -> Record:
    outcome = Outcome.OOM if speed is None else Outcome.OK
    result = TrialResult(trial_id="t", outcome=outcome, phase=Phase.BACKWARD, tokens_per_second=speed)
    return Record(number, point, result, None, NOW, NOW)


def trials() -> list[Record]:
    """Speed follows the checkpointed share; the micro batch, with its accumulation, hardly matters."""
    points = [
        Point(micro_batch_size=size, gradient_accumulation_steps=8 // size, checkpoint_fraction=share)
        for size in (1, 2, 4, 8)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    speeds = [1000 * (2 - point.checkpoint_fraction) + point.micro_batch_size for point in points]
    return [record(number, *pair) for number, pair in enumerate(zip(points, speeds, strict=True))]


def test_the_knob_that_decides_comes_first_and_shares_sum_to_one() -> None:
    found = knob_importances(trials())
    assert next(iter(found)) == "checkpoint_fraction" and found["checkpoint_fraction"] > 0.7
    assert sum(found.values()) == pytest.approx(1.0)
    # Accumulation follows from the micro batch, and what does not vary is not a knob.
    assert set(found) == {"checkpoint_fraction", "micro_batch_size"}


def test_too_few_trials_with_a_speed_say_nothing() -> None:
    few = trials()[: LEAST_TRIALS - 1]
    lost = [record(99 + n, Point(micro_batch_size=16 + n), None) for n in range(5)]
    assert knob_importances([*few, *lost]) == {}
    assert knob_importances([]) == {}


def test_trials_of_one_point_have_no_knob() -> None:
    assert knob_importances([record(number, Point(), 1000.0 + number) for number in range(20)]) == {}
