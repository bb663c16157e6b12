"""When a search is over, what it still owes the price list, and what is kept of how sure it was."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from session_samples import make_task
from tuning_samples import add, empty_study, trial_result

from autotune.display.results import certainty_words, findings_text
from autotune.models import resolve_model
from autotune.study import Record
from autotune.throughput import Remaining, Training
from autotune.throughput.advisor import Advisor
from autotune.tuning.certainty import (
    is_settled,
    keep_remaining,
    kept_remaining,
    left_to_gain,
    unpriced_point,
)
from autotune.tuning.completion import is_searched, note_searched
from autotune.tuning.findings import findings_json, findings_of
from trials.wire import Outcome, Point

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RANKS = (16, 32, 64)
SIZES = (1, 2, 4, 8, 16)
POINTS = [
    Point(micro_batch_size=size, gradient_accumulation_steps=32 // size, lora_rank=rank)
    for rank in RANKS
    for size in SIZES
]
ADVISOR = Advisor(Training(resolve_model("qwen2.5-1.5b"), 1024), POINTS)


def records(**speeds_of_16: float) -> list[Record]:
    """Measured points of rank 16, by micro batch (`mb8=...`)."""
    found = []
    for number, (name, speed) in enumerate(speeds_of_16.items()):
        point = next(p for p in POINTS if p.lora_rank == 16 and p.micro_batch_size == int(name[2:]))
        found.append(Record(number, point, trial_result(speed), None, NOW, NOW))
    return found


def left_of(history: list[Record]) -> list[Point]:
    return [point for point in POINTS if point not in {record.point for record in history}]


def test_a_search_is_over_when_little_is_left_to_gain_and_not_before() -> None:
    poor, good = records(mb1=5_000.0), records(mb1=5_000.0, mb4=20_000.0, mb8=36_000.0, mb16=40_000.0)
    early, late = (left_to_gain(ADVISOR, history, left_of(history), 0.01) for history in (poor, good))
    assert early is not None and late is not None
    assert early.share > 1.0 and early.beaten > 0.95
    assert late.share < 0.05
    assert left_to_gain(ADVISOR, [], POINTS, 0.01) is None
    little = Remaining(share=0.004, beaten=0.1, margin=0.01, points=11)
    assert is_settled(little, good, 0.01)
    assert not is_settled(little, good, 0.001)
    assert not is_settled(little, good, 0.0)
    assert not is_settled(None, good, 0.01)
    # Three measured of fourteen are not enough, of three they are.
    assert not is_settled(little, good[:3], 0.01)
    assert is_settled(Remaining(0.0, 0.0, 0.01, 0), good[:3], 0.01)
    assert is_settled(little, good[:3], 0.01, least=3)


def test_every_rank_gets_its_price_at_its_most_promising_point() -> None:
    history = records(mb4=20_000.0, mb8=36_000.0, mb16=40_000.0)
    owed = unpriced_point(ADVISOR, history, left_of(history))
    assert owed is not None and owed.lora_rank in (32, 64) and owed.micro_batch_size == 16
    other = unpriced_point(ADVISOR, history, left_of(history), elsewhere={("lora_rank", owed.lora_rank)})
    assert other is not None and {other.lora_rank, owed.lora_rank} == {32, 64}
    done = [
        *history,
        *(
            Record(
                10 + rank,
                Point(micro_batch_size=16, gradient_accumulation_steps=2, lora_rank=rank),
                trial_result(30_000.0),
                None,
                NOW,
                NOW,
            )
            for rank in (32, 64)
        ),
    ]
    assert unpriced_point(ADVISOR, done, left_of(done)) is None
    assert unpriced_point(ADVISOR, history, []) is None


def test_a_price_that_is_far_too_high_is_not_asked() -> None:
    history = records(mb16=40_000.0)
    slow = [
        Point(
            micro_batch_size=1,
            gradient_accumulation_steps=32,
            lora_rank=64,
            zero_stage=3,
            offload="optimizer+parameters",
        )
    ]
    assert unpriced_point(ADVISOR, history, slow) is None


def test_a_study_keeps_how_sure_it_was_and_tells(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    fast, tied, slow = (Point(micro_batch_size=size, lora_rank=16) for size in (8, 6, 1))
    slower = Point(micro_batch_size=2, lora_rank=16)
    for point, speed in ((slow, 100.0), (slower, 200.0), (tied, 995.0), (fast, 1000.0)):
        add(study, point, trial_result(speed))
    assert kept_remaining(study) is None
    keep_remaining(study, Remaining(share=0.004, beaten=0.05, margin=0.01, points=812))

    findings = findings_of(study)
    shown = findings_json(findings)
    assert shown["certainty"] == {
        "expected_gain_left": 0.004,
        "probability_beaten": 0.05,
        "margin": 0.01,
        "unmeasured_points": 812,
    }
    winner = findings.chosen
    assert winner is not None
    [tie] = shown["ties"]
    assert {tie["point"]["micro_batch_size"], winner.record.point.micro_batch_size} == {6, 8}
    text = findings_text(findings)
    assert (
        "0.4 % expected to be left to gain; 5 % chance that one of 812 unmeasured points is over 1 % faster"
        in text
    )
    assert "the clock cannot tell it from the winner" in text
    assert certainty_words(Remaining(0.0, 0.0, 0.01, 0)) == "every point that fits is measured"


def test_of_one_trial_no_figures_of_what_is_left_are_told(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, Point(lora_rank=16), trial_result(100.0))
    add(study, Point(micro_batch_size=64, lora_rank=16), trial_result(outcome=Outcome.OOM))
    keep_remaining(study, Remaining(share=5.227, beaten=1.0, margin=0.01, points=812))
    text = findings_text(findings_of(study))
    assert "too few trials to say (1 measured, 812 not)" in text
    assert "523" not in text and "522.7" not in text


@pytest.mark.parametrize(
    ("remaining", "words"),
    [
        (
            Remaining(share=2.36, beaten=0.99, margin=0.01, points=3),
            "more than 100 % expected to be left to gain; 99 % chance that one of 3 unmeasured points is "
            "over 1 % faster",
        ),
        (
            Remaining(share=0.02, beaten=0.87, margin=0.0, points=1),
            "2.0 % expected to be left to gain; 87 % chance that the one unmeasured point is faster",
        ),
    ],
)
def test_what_is_left_is_said_so_that_it_can_be_believed(remaining: Remaining, words: str) -> None:
    assert certainty_words(remaining) == words


def test_a_settled_search_is_not_begun_again_unless_more_is_asked_of_it(tmp_path: Path) -> None:
    task, study = make_task(tmp_path, "lora", until=0.01), empty_study(tmp_path)
    note_searched(study, task, host_limited=False, until=0.01)
    assert is_searched(study, task)
    assert is_searched(study, make_task(tmp_path, "lora", until=0.05))
    assert not is_searched(study, make_task(tmp_path, "lora", until=0.001))
    assert not is_searched(study, make_task(tmp_path, "lora", until=0.0))
    add(study, task.stages[0].points[0], trial_result(outcome=Outcome.OOM))
    assert not is_searched(study, task)


@pytest.mark.parametrize("low, high, ties", [(990.0, 1010.0, 1), (900.0, 905.0, 0)])
def test_only_overlapping_intervals_are_ties(tmp_path: Path, low: float, high: float, ties: int) -> None:
    study = empty_study(tmp_path)
    add(study, Point(micro_batch_size=8, lora_rank=16), trial_result(1000.0))
    middle = (low + high) / 2
    other = trial_result(middle, tokens_per_second_low=low, tokens_per_second_high=high)
    add(study, Point(micro_batch_size=4, lora_rank=16), other)
    assert len(findings_of(study).ties) == ties
