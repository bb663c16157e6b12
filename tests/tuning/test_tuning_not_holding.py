"""What is fast in a trial and does not hold in the longer run: the search goes on without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_samples import make_session, make_task
from tuning_samples import MIB, add, empty_study, trial_result

from autotune.display.results import shortfall_words
from autotune.running import TrialRunner
from autotune.tuning.candidates import Candidates
from autotune.tuning.confirm import best_so_far
from autotune.tuning.confirmations import failed_points
from autotune.tuning.findings import RunResult, findings_of
from autotune.tuning.search import anything_left
from autotune.tuning.session import judged_records
from autotune.tuning.shortfall import Shortfall
from autotune.tuning.tune import _search_and_confirm
from trials.wire import Outcome, Phase, Point, TrialResult, TrialSpec

SPACE = (
    "micro_batch_size: [1, 2, 4, 8]\ncheckpoint_fraction: [0, 0.25, 0.5, 0.75, 1]\nzero_stage: [0, 1, 2]\n"
)
EVALUATION_OOM = {"outcome": Outcome.OOM, "phase": Phase.EVALUATION, "oom_short_bytes": 300 * MIB}


class Machine(TrialRunner):
    """Answers by a rule in place of a GPU: the larger the micro batch the faster, but 8 cannot evaluate."""

    def __init__(self, folder: Path) -> None:
        super().__init__("cuda", model_type=None, log_dir=folder)
        self.confirmed: list[Point] = []

    def run(self, spec: TrialSpec, **how: Any) -> TrialResult:
        point = spec.point
        speed = (
            1000.0 * point.micro_batch_size * (1 - 0.1 * point.checkpoint_fraction - 0.05 * point.zero_stage)
        )
        if spec.confirm:
            self.confirmed.append(point)
            if point.micro_batch_size == 8:
                return trial_result(**EVALUATION_OOM)
        return trial_result(speed)


def test_where_the_fastest_do_not_hold_the_search_goes_on_to_one_that_does(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", space=SPACE, trials=40)
    runner = Machine(tmp_path)
    session, lines = make_session(tmp_path, task, None, runner)
    assert _search_and_confirm(session, task) is None

    chosen = best_so_far(session.study)
    assert chosen is not None and chosen.confirmation is not None
    # Of what can evaluate the fastest: no other knob is worth as much as the micro batch.
    best = chosen.record.point
    assert (best.micro_batch_size, best.checkpoint_fraction, best.zero_stage) == (4, 0.0, 0)
    assert runner.confirmed[0].micro_batch_size == 8
    assert "searching without it" in lines.getvalue()
    # One longer run for each ZeRO stage, which are not compared; checkpointing does not help an evaluation.
    assert sorted(point.zero_stage for point in runner.confirmed if point.micro_batch_size == 8) == [0, 1, 2]


def test_what_did_not_hold_counts_as_the_failure_it_is(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    large = Point(micro_batch_size=4, lora_rank=16, checkpoint_fraction=0.5)
    small = Point(micro_batch_size=2, lora_rank=16, checkpoint_fraction=0.5)
    larger = Point(micro_batch_size=8, lora_rank=16, checkpoint_fraction=0.5)
    for point, speed in ((large, 1000.0), (small, 800.0)):
        add(study, point, trial_result(speed))
    study.add_confirmation(large, trial_result(**EVALUATION_OOM))

    judged = {record.point: record.result for record in judged_records(study)}
    assert judged[large] is not None and judged[large].phase is Phase.EVALUATION
    assert judged[small] is not None and judged[small].outcome is Outcome.OK
    candidates = Candidates([large, small, larger])
    candidates.update(judged_records(study))
    assert candidates.remaining() == []


def test_what_was_measured_and_needs_as_much_in_an_evaluation_is_not_confirmed_in_vain(
    tmp_path: Path,
) -> None:
    study = empty_study(tmp_path)
    failed = Point(micro_batch_size=8, lora_rank=16)
    alike = Point(micro_batch_size=8, lora_rank=16, checkpoint_fraction=1.0)
    confirmed = Point(micro_batch_size=8, lora_rank=16, checkpoint_fraction=0.5)
    smaller = Point(micro_batch_size=4, lora_rank=16)
    for point in (failed, alike, confirmed, smaller):
        add(study, point, trial_result(1000.0))
    study.add_confirmation(confirmed, trial_result(900.0))
    study.add_confirmation(failed, trial_result(**EVALUATION_OOM))
    assert failed_points(study) == {failed, alike}


def test_a_crash_of_the_longer_run_says_nothing_of_the_trial(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    point = Point(lora_rank=16)
    add(study, point, trial_result(1000.0))
    study.add_confirmation(point, trial_result(outcome=Outcome.CRASH))
    [record] = judged_records(study)
    assert record.result is not None and record.result.outcome is Outcome.OK


def test_where_the_trials_are_used_up_on_larger_ones_that_is_said(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", space=SPACE, trials=2)
    session, _ = make_session(tmp_path, task, None, Machine(tmp_path))
    for point in (
        Point(micro_batch_size=8, lora_rank=16),
        Point(micro_batch_size=8, lora_rank=16, zero_stage=1),
    ):
        add(session.study, point, trial_result(8000.0))
    found = _search_and_confirm(session, task)
    assert isinstance(found, Shortfall) and found.point.micro_batch_size == 1
    result = RunResult(findings_of(session.study), 1.0, None, found, interrupted=False)
    message, hint = shortfall_words(result)
    assert message.startswith("no trial fitted 24.0 GiB; trials: 2: 2 ok")
    assert hint.startswith("the smallest point would fit: run it again with more --trials or --timeout (mb 1")


def test_a_later_stage_is_not_closed_by_what_did_not_hold(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", "qlora")
    study = empty_study(tmp_path, device=task.device, budget_bytes=task.budget.size_bytes)
    for point in task.stages[0].points:
        add(study, point, trial_result(1000.0))
    assert not anything_left(task, study)
    for point in task.stages[0].points:
        study.add_confirmation(point, trial_result(**EVALUATION_OOM))
    assert anything_left(task, study)
