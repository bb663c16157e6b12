"""Real processes that really die: a study survives them, and two that share one do not disturb each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotune.study import Study, StudyInputs, list_studies
from autotune.study.trial_codec import OWNER, RESULT, STARTED_AT, encode_result
from trials.wire import Outcome, Phase, Point, TrialResult

ROOT = Path(__file__).parents[2]
PRELUDE = """
import sys, time
from autotune.study import PointTaken, Study, StudyInputs
from trials.wire import Outcome, Phase, Point, TrialResult
url, inputs = sys.argv[1], StudyInputs.model_validate_json(sys.argv[2])
def result(speed):
    return TrialResult(trial_id="0", outcome=Outcome.OK, phase=Phase.LATER_STEP, tokens_per_second=speed)
study = Study.open(url, inputs)
"""
BEGIN_AND_HANG = (
    PRELUDE
    + """
study.finish(study.begin(Point(micro_batch_size=1)), result(1.0))
study.begin(Point(micro_batch_size=2))
print("ready", flush=True)
time.sleep(600)
"""
)
NEVER_REST = (
    PRELUDE
    + """
for size in range(1, 10**6):
    number = study.begin(Point(micro_batch_size=size))
    study.set_note("size", size)
    study.finish(number, result(float(size)))
    if size == 1:
        print("ready", flush=True)
"""
)
SHARE = (
    PRELUDE
    + """
print("ready", flush=True)
for size in range(1, 8):
    try:
        number = study.begin(Point(micro_batch_size=size))
    except PointTaken:
        continue
    study.finish(number, result(float(size)))
    study.add_confirmation(Point(micro_batch_size=size), result(float(size)))
"""
)


def start(code: str, storage_url: str, inputs: StudyInputs) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, storage_url, inputs.model_dump_json()],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout and child.stdout.readline() == "ready\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate()


def sizes(study: Study) -> list[int]:
    return [record.point.micro_batch_size for record in study.records()]


def test_after_a_kill_the_finished_trials_are_there_and_the_running_point_is_free(
    storage_url: str, inputs: StudyInputs
) -> None:
    child = start(BEGIN_AND_HANG, storage_url, inputs)
    reader = Study.load(storage_url, inputs.study_name())
    assert [record.result is None for record in Study.open(storage_url, inputs).records()] == [False, True]
    kill(child)
    # A reader sees at once that nobody runs it, without writing anything.
    assert sizes(reader) == [1] and list_studies(storage_url)[0].running == 0
    assert (
        optuna.load_study(study_name=reader.name, storage=storage_url).trials[1].state == TrialState.RUNNING
    )
    study = Study.open(storage_url, inputs)
    swept = optuna.load_study(study_name=reader.name, storage=storage_url).trials[1]
    assert swept.state == TrialState.FAIL and swept.user_attrs["outcome"] == "abandoned"
    number = study.begin(Point(micro_batch_size=2))
    study.finish(number, TrialResult(trial_id="0", outcome=Outcome.OOM, phase=Phase.START))
    assert sizes(study) == [1, 2]


def test_a_kill_at_any_moment_leaves_a_study_that_opens(storage_url: str, inputs: StudyInputs) -> None:
    for round_number in range(2):
        child = start(NEVER_REST, storage_url, inputs)
        time.sleep(0.1 * round_number)
        kill(child)
        study = Study.open(storage_url, inputs)
        records = study.records()
        assert records and all(record.result and record.finished_at for record in records)
        assert all(r.result and r.result.tokens_per_second == r.point.micro_batch_size for r in records)
        for trial in optuna.load_study(study_name=study.name, storage=storage_url).trials:
            assert trial.state.is_finished()
            assert (trial.state == TrialState.COMPLETE) == (trial.user_attrs["outcome"] == "ok")


def test_a_kill_while_the_tables_are_made_leaves_a_storage_that_opens(
    tmp_path: Path, inputs: StudyInputs
) -> None:
    for attempt in range(3):
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        code = "import sys, autotune.study.storage as storage\nprint('ready', flush=True)\n"
        code += "storage.connect(sys.argv[1], create=True)"
        child = start(code, url, inputs)
        time.sleep(0.05 * attempt)
        kill(child)
        assert Study.open(url, inputs).records() == ()


def test_a_result_that_was_written_before_the_kill_is_not_lost(storage_url: str, inputs: StudyInputs) -> None:
    """`finish` writes the result first; whatever follows is made up for."""
    study = Study.open(storage_url, inputs)
    number = study.begin(Point())
    storage = optuna.storages.RDBStorage(storage_url)
    trial = optuna.load_study(study_name=study.name, storage=storage_url).trials[0]
    measured = TrialResult(trial_id="0", outcome=Outcome.OK, phase=Phase.LATER_STEP, tokens_per_second=9.0)
    storage.set_trial_system_attr(trial._trial_id, RESULT, encode_result(measured))
    storage.set_trial_system_attr(trial._trial_id, "autotune:finished_at", trial.system_attrs[STARTED_AT])
    storage.set_trial_system_attr(trial._trial_id, OWNER, dead_owner(trial.system_attrs[OWNER]))
    (record,) = Study.open(storage_url, inputs).records()
    assert record.number == number and record.result == measured
    assert optuna.load_study(study_name=study.name, storage=storage_url).best_value == 9.0


def dead_owner(owner: dict[str, Any]) -> dict[str, Any]:
    """This process's number, as it would be after the number was given to another process."""
    return owner | {"started": owner["started"] - 3600}


def test_a_process_with_the_number_of_a_dead_one_is_not_taken_for_it(
    storage_url: str, inputs: StudyInputs
) -> None:
    study = Study.open(storage_url, inputs)
    study.begin(Point())
    assert len(study.records()) == 1
    trial = optuna.load_study(study_name=study.name, storage=storage_url).trials[0]
    optuna.storages.RDBStorage(storage_url).set_trial_system_attr(
        trial._trial_id, OWNER, dead_owner(trial.system_attrs[OWNER])
    )
    assert study.records() == ()


@pytest.mark.parametrize(("age_hours", "alive"), [(1, True), (7, False)])
def test_a_trial_of_another_host_is_believed_for_some_hours(
    storage_url: str, inputs: StudyInputs, age_hours: int, alive: bool
) -> None:
    study = Study.open(storage_url, inputs)
    number = study.begin(Point())
    trial = optuna.load_study(study_name=study.name, storage=storage_url).trials[0]
    storage = optuna.storages.RDBStorage(storage_url)
    started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 3600 * age_hours))
    storage.set_trial_system_attr(trial._trial_id, OWNER, trial.system_attrs[OWNER] | {"host": "elsewhere"})
    storage.set_trial_system_attr(trial._trial_id, STARTED_AT, started)
    assert bool(Study.open(storage_url, inputs).records()) == alive
    # Even if it was given up too early, a measurement that arrives is kept.
    late = TrialResult(trial_id="0", outcome=Outcome.OK, phase=Phase.LATER_STEP, tokens_per_second=3.0)
    study.finish(number, late)
    assert [record.result for record in Study.open(storage_url, inputs).records()] == [late]


def test_two_processes_share_a_study_and_measure_nothing_twice(storage_url: str, inputs: StudyInputs) -> None:
    children = [start(SHARE, storage_url, inputs) for _ in range(2)]
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    study = Study.open(storage_url, inputs)
    numbers = [record.number for record in study.records()]
    assert set(sizes(study)) == set(range(1, 8)) and len(set(numbers)) == len(numbers)
    assert len(study.confirmations()) == len(numbers)
