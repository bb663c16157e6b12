"""What is fast in a trial and does not hold in the longer run: the search goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from session_samples import make_session, make_task
from tuning_samples import MIB, add, empty_study, trial_result

from autotune.display.results import shortfall_words
from autotune.errors import EnvironmentProblem
from autotune.models import resolve_model
from autotune.reuse.observations import speed_of
from autotune.running import TrialRunner
from autotune.study import list_studies
from autotune.study.reading import StorageReader
from autotune.throughput import CPU_RATES, Training
from autotune.throughput.advisor import Advisor
from autotune.throughput.seen import seen_of
from autotune.tuning.candidates import Candidates
from autotune.tuning.completion import is_searched
from autotune.tuning.confirm import best_so_far
from autotune.tuning.confirmations import failed_points
from autotune.tuning.findings import RunResult, findings_of
from autotune.tuning.search import anything_left
from autotune.tuning.session import judged_records
from autotune.tuning.shortfall import Shortfall
from autotune.tuning.tune import _search_and_confirm
from autotune.winner.ranking import ranking
from trials.wire import Outcome, Phase, Point, TrialResult, TrialSpec

SPACE = (
    "micro_batch_size: [1, 2, 4, 8]\ncheckpoint_fraction: [0, 0.25, 0.5, 0.75, 1]\nzero_stage: [0, 1, 2]\n"
)
EVALUATION_OOM = {"outcome": Outcome.OOM, "phase": Phase.EVALUATION, "oom_short_bytes": 300 * MIB}


class Machine(TrialRunner):
    """Answers by a rule in place of a GPU: the larger the micro batch the faster, but 8 cannot evaluate.

    Args:
        folder: for its log.
        fails: of which points the longer run fails; None: of micro batches of 8.
        failure: how.
    """

    def __init__(
        self,
        folder: Path,
        fails: Callable[[Point], bool] | None = None,
        failure: Mapping[str, Any] = EVALUATION_OOM,
    ) -> None:
        super().__init__("cuda", model_type=None, log_dir=folder)
        self.asked: list[Point] = []
        self.confirmed: list[Point] = []
        self._fails = fails or (lambda point: point.micro_batch_size == 8)
        self._failure = failure

    def speed(self, point: Point) -> float:
        slower = 0.1 * point.checkpoint_fraction + 0.05 * point.zero_stage
        return 1000.0 * point.micro_batch_size * (1 - slower)

    def run(self, spec: TrialSpec, **how: Any) -> TrialResult:
        self.asked.append(spec.point)
        if spec.confirm and spec.budget_bytes is not None:
            self.confirmed.append(spec.point)
            if self._fails(spec.point):
                return trial_result(**self._failure)
        return trial_result(self.speed(spec.point))


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
    assert "it is left out from here on" in lines.getvalue()
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
    large = [Point(micro_batch_size=8, lora_rank=16, zero_stage=stage) for stage in (0, 1)]
    for point in large:
        add(session.study, point, trial_result(8000.0))
    found = _search_and_confirm(session, task)
    assert isinstance(found, Shortfall) and found.point.micro_batch_size == 1
    result = RunResult(findings_of(session.study), 1.0, None, found, interrupted=False)
    message, hint = shortfall_words(result)
    assert message.startswith("no trial fitted 24.0 GiB; trials: 2: 2 ok")
    assert hint.startswith("the smallest point would fit: run it again with more --trials or --timeout (mb 1")
    # Once that one has been tried, nobody is sent to it again.
    add(session.study, found.point, trial_result(900.0))
    session.study.add_confirmation(found.point, trial_result(**EVALUATION_OOM))
    again = _search_and_confirm(session, task)
    assert isinstance(again, Shortfall) and not again.untried


def test_where_all_of_a_method_do_not_hold_the_next_one_is_tried(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", "qlora", trials=40)
    runner = Machine(tmp_path, fails=lambda point: point.quantization == "none")
    session, _ = make_session(tmp_path, task, None, runner)
    assert _search_and_confirm(session, task) is None
    chosen = best_so_far(session.study)
    assert chosen is not None and chosen.record.point.quantization == "nf4"


def test_longer_runs_that_all_fail_alike_end_the_run_soon(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", space=SPACE, trials=40)
    runner = Machine(tmp_path, fails=lambda _: True, failure={"outcome": Outcome.NAN, "message": "a NaN"})
    session, _ = make_session(tmp_path, task, None, runner)
    with pytest.raises(EnvironmentProblem, match="3 trials in a row failed alike: a NaN"):
        _search_and_confirm(session, task)
    assert len(runner.confirmed) == 3


def test_a_longer_run_that_says_nothing_is_not_made_again_in_each_round(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", space=SPACE, trials=40)

    class Slow(Machine):
        def run(self, spec: TrialSpec, **how: Any) -> TrialResult:
            result = super().run(spec, **how)
            hangs = spec.confirm and spec.point == Point(micro_batch_size=8, lora_rank=16)
            return trial_result(outcome=Outcome.TIMEOUT) if hangs else result

    runner = Slow(tmp_path)
    session, lines = make_session(tmp_path, task, None, runner)
    assert _search_and_confirm(session, task) is None
    assert runner.confirmed.count(Point(micro_batch_size=8, lora_rank=16)) == 2
    assert "a faster configuration could not be confirmed" in lines.getvalue()


def test_the_runner_up_is_not_one_that_was_just_ruled_out(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", space=SPACE, trials=3)
    runner = Machine(tmp_path)
    session, _ = make_session(tmp_path, task, None, runner)
    for size, share in ((8, 0.0), (8, 0.25), (4, 0.0)):
        point = Point(micro_batch_size=size, lora_rank=16, checkpoint_fraction=share)
        add(session.study, point, trial_result(runner.speed(point), build="reused"))
    assert _search_and_confirm(session, task) is None
    assert [point.micro_batch_size for point in runner.asked] == [8, 4]


def test_an_interruption_after_a_failed_longer_run_leaves_something_to_search(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", space=SPACE, trials=40)

    class Stopped(Machine):
        def run(self, spec: TrialSpec, **how: Any) -> TrialResult:
            if self.confirmed:
                raise KeyboardInterrupt
            return super().run(spec, **how)

    session, _ = make_session(tmp_path, task, None, Stopped(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        _search_and_confirm(session, task)
    assert len(failed_points(session.study)) >= 1
    assert not is_searched(session.study, task)


def test_a_failure_in_the_trial_itself_is_not_made_a_weaker_one(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    failed, start = Point(micro_batch_size=8, lora_rank=16), Point(micro_batch_size=8, lora_rank=128)
    add(study, failed, trial_result(1000.0))
    add(study, start, trial_result(outcome=Outcome.OOM, phase=Phase.START))
    study.add_confirmation(failed, trial_result(**EVALUATION_OOM))
    phases = {record.point: record.result.phase for record in judged_records(study) if record.result}
    assert phases == {failed: Phase.EVALUATION, start: Phase.START}


def test_its_speed_stays_known(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    failed = Point(micro_batch_size=8, lora_rank=16)
    add(study, failed, trial_result(1000.0))
    study.add_confirmation(failed, trial_result(**EVALUATION_OOM))
    [record] = judged_records(study)
    seen = seen_of(record.point, record.result)
    assert (seen.tokens_per_second, seen.fitted, speed_of(record)) == (1000.0, False, 1000.0)
    # It is no best to compare with: there is none.
    training = Training(resolve_model("tiny-llama"), 128, CPU_RATES)
    other = Point(lora_rank=16)
    assert Advisor(training, [failed, other]).remaining([seen], [other], 0.01) is None


def test_what_did_not_hold_is_neither_listed_nor_recommended_to_other_studies(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    failed = Point(micro_batch_size=8, lora_rank=16)
    alike = Point(micro_batch_size=8, lora_rank=16, checkpoint_fraction=0.25)
    add(study, failed, trial_result(8000.0))
    add(study, alike, trial_result(7800.0))
    add(study, Point(micro_batch_size=4, lora_rank=16), trial_result(4000.0))
    study.add_confirmation(failed, trial_result(**EVALUATION_OOM))
    [summary] = list_studies(study.url)
    assert summary.best_tokens_per_second == 4000.0
    ranked = ranking(StorageReader(study.url).records(study.name), budget_bytes=study.inputs.budget_bytes)
    assert [record.point.micro_batch_size for record in ranked] == [4]


def test_a_later_stage_is_not_closed_by_what_did_not_hold(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", "qlora")
    study = empty_study(tmp_path, device=task.device, budget_bytes=task.budget.size_bytes)
    for point in task.stages[0].points:
        add(study, point, trial_result(1000.0))
    assert not anything_left(task, study)
    for point in task.stages[0].points:
        study.add_confirmation(point, trial_result(**EVALUATION_OOM))
    assert anything_left(task, study)
