"""What is measured a second time: trials whose GPU was disturbed, and a runner-up that may yet win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from session_samples import make_session, make_task
from tuning_samples import MIB, add, trial_result

from autotune.running import TrialRunner
from autotune.tuning.confirm import best_so_far, confirm_winner
from autotune.tuning.session import Session
from trials.wire import Outcome, Point, TrialResult, TrialSpec

HOT = "the GPU slowed itself down (too hot)"


class Recorded(TrialRunner):
    """Answers from a list in place of a GPU, which could not be disturbed at will."""

    def __init__(self, folder: Path, answers: list[TrialResult]) -> None:
        super().__init__("cuda", model_type=None, log_dir=folder)
        self.answers = answers
        self.asked: list[tuple[TrialSpec, bool]] = []

    def run(self, spec: TrialSpec, *, fresh: bool = False, **how: Any) -> TrialResult:
        self.asked.append((spec, fresh))
        return self.answers.pop(0)


def session_of(folder: Path, *answers: TrialResult) -> tuple[Session, Recorded, Any]:
    runner = Recorded(folder, list(answers))
    session, lines = make_session(folder, make_task(folder, "lora"), None, runner)
    return session, runner, lines


def points(session: Session) -> tuple[Point, ...]:
    return tuple(session.task.stages[0].points)


def test_a_disturbed_trial_is_measured_once_more_and_the_user_is_told(tmp_path: Path) -> None:
    session, runner, lines = session_of(tmp_path, trial_result(800.0, disturbed=HOT), trial_result(1000.0))
    session.measure(points(session)[0], 2)

    [record] = session.study.records()
    assert record.result is not None and record.result.tokens_per_second == 1000.0
    assert len(runner.asked) == 2
    assert f"trial 1 was disturbed ({HOT}): it is measured once more" in lines.getvalue()


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.CRASH, Outcome.OOM])
def test_a_second_measurement_that_fails_takes_nothing_from_the_first(
    tmp_path: Path, outcome: Outcome
) -> None:
    session, _, _ = session_of(tmp_path, trial_result(800.0, disturbed=HOT), trial_result(outcome=outcome))
    session.measure(points(session)[0], 2)

    [record] = session.study.records()
    assert record.result is not None
    assert (record.result.tokens_per_second, record.result.disturbed) == (800.0, HOT)


def test_a_failure_is_not_repeated_because_the_gpu_was_hot(tmp_path: Path) -> None:
    session, runner, _ = session_of(tmp_path, trial_result(outcome=Outcome.OOM, disturbed=HOT))
    session.measure(points(session)[0], 2)
    assert len(runner.asked) == 1


def test_on_a_machine_that_is_always_disturbed_trials_are_only_marked(tmp_path: Path) -> None:
    session, runner, lines = session_of(tmp_path, *[trial_result(800.0 + i, disturbed=HOT) for i in range(5)])
    space = [Point(lora_rank=16, micro_batch_size=size) for size in (1, 2, 4)]
    for point in space:
        session.measure(point, 2)

    assert len(runner.asked) == 5
    assert "measuring again does not help" in lines.getvalue()
    assert f"trial 3 was disturbed: {HOT}" in lines.getvalue()


def measured(session: Session, *speeds: tuple[float, str]) -> list[Point]:
    """Trials of the search, by speed and by how they were measured."""
    found = [Point(lora_rank=16, micro_batch_size=2**i) for i in range(len(speeds))]
    for point, (speed, build) in zip(found, speeds, strict=True):
        add(session.study, point, trial_result(speed, build=build))
    return found


def test_a_runner_up_from_a_reused_engine_is_measured_alone_and_can_win(tmp_path: Path) -> None:
    session, runner, _ = session_of(
        tmp_path, trial_result(1000.0), trial_result(1100.0), trial_result(1090.0)
    )
    [_, second] = measured(session, (1000.0, "reused"), (960.0, "reused"))
    chosen = confirm_winner(session)

    assert chosen is not None and chosen.record.point == second
    assert chosen.measured.tokens_per_second == 1090.0
    # The winner's longer run, the runner-up's short one, and then its longer one.
    assert [(spec.point == second, spec.confirm, fresh) for spec, fresh in runner.asked] == [
        (False, True, False),
        (True, False, True),
        (True, True, False),
    ]
    again = best_so_far(session.study)
    assert again is not None and again.record.point == second


def test_a_runner_up_that_stays_behind_changes_nothing_and_is_not_measured_twice(tmp_path: Path) -> None:
    session, runner, _ = session_of(tmp_path, trial_result(1000.0), trial_result(955.0))
    [first, _] = measured(session, (1000.0, "reused"), (960.0, "reused"))
    for _ in range(2):
        chosen = confirm_winner(session)
        assert chosen is not None and chosen.record.point == first
    assert len(runner.asked) == 2


def test_a_runner_up_that_does_not_run_alone_cannot_win(tmp_path: Path) -> None:
    oom = trial_result(outcome=Outcome.OOM, device_bytes=100 * MIB)
    session, _, _ = session_of(tmp_path, trial_result(900.0), oom)
    [first, _] = measured(session, (1000.0, "reused"), (930.0, "reused"))
    chosen = confirm_winner(session)
    assert chosen is not None and chosen.record.point == first


def test_a_runner_up_measured_alone_and_clearly_slower_is_left_alone(tmp_path: Path) -> None:
    session, runner, _ = session_of(tmp_path, trial_result(1000.0))
    measured(session, (1000.0, "fresh"), (900.0, "fresh"))
    assert confirm_winner(session) is not None
    assert len(runner.asked) == 1


@pytest.mark.parametrize(
    ("confirmed", "told"),
    [(920.0, "8% slower than its trial"), (1080.0, "8% faster than its trial"), (960.0, None)],
)
def test_a_longer_run_that_is_clearly_off_its_trial_is_told(
    tmp_path: Path, confirmed: float, told: str | None
) -> None:
    session, _, lines = session_of(tmp_path, trial_result(confirmed))
    measured(session, (1000.0, "fresh"), (500.0, "fresh"))
    assert confirm_winner(session) is not None
    assert ("than its trial" in lines.getvalue()) is (told is not None)
    assert told is None or told in lines.getvalue()


def ranks(session: Session, *speeds: tuple[int, float]) -> dict[int, Point]:
    found = {rank: Point(lora_rank=rank) for rank, _ in speeds}
    for rank, speed in speeds:
        add(session.study, found[rank], trial_result(speed))
    return found


def test_a_tie_that_the_longer_run_made_goes_to_what_trains_better(tmp_path: Path) -> None:
    # 980 is no tie with 1,000; with the 985 that the longer run gives it is one. The runner-up is rank 8.
    answers = trial_result(985.0), trial_result(984.0), trial_result(982.0)
    session, runner, _ = session_of(tmp_path, *answers)
    points_of = ranks(session, (16, 1000.0), (32, 980.0), (8, 984.0))
    chosen = confirm_winner(session)

    assert chosen is not None and chosen.record.point == points_of[32]
    assert chosen.measured.tokens_per_second == 982.0
    asked = [(spec.point.lora_rank, spec.confirm) for spec, _ in runner.asked]
    assert asked == [(16, True), (8, False), (32, True)]
    again = best_so_far(session.study)
    assert again is not None and again.record.point == points_of[32]


def test_what_trains_better_and_is_slower_alone_or_does_not_hold_leaves_the_winner(tmp_path: Path) -> None:
    oom = trial_result(outcome=Outcome.OOM, device_bytes=100 * MIB)
    session, runner, _ = session_of(
        tmp_path, trial_result(985.0), trial_result(984.0), oom, trial_result(800.0)
    )
    points_of = ranks(session, (16, 1000.0), (8, 984.0), (32, 978.0), (64, 976.0))
    chosen = confirm_winner(session)
    assert chosen is not None and chosen.record.point == points_of[16]
    assert [spec.point.lora_rank for spec, _ in runner.asked] == [16, 8, 64, 32]
