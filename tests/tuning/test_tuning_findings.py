"""What a study is said to have found, from what it holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tuning_samples import MIB, add, empty_study, trial_result

from autotune.errors import EnvironmentProblem, ExitCode, UsageError
from autotune.study import default_storage_url
from autotune.tuning.confirm import DECIDED_NOTE, best_so_far
from autotune.tuning.confirmations import failed_points
from autotune.tuning.findings import RunResult, findings_json, findings_of
from autotune.tuning.folders import check_writable, study_folders
from autotune.tuning.ownership import Owner, give_back, owner_of, take
from autotune.tuning.session import DISREGARDED_NOTE, measured_records
from autotune.tuning.shortfall import Shortfall
from trials.wire import Outcome, Point

FAST, MIDDLE, SLOW = (Point(lora_rank=16, micro_batch_size=size) for size in (4, 2, 1))


def test_before_any_confirmation_the_fastest_trial_is_the_best(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, SLOW, trial_result(1000.0))
    add(study, FAST, trial_result(2000.0))

    best = best_so_far(study)

    assert best is not None
    assert (best.record.point, best.confirmation, best.measured.tokens_per_second) == (FAST, None, 2000.0)


def test_a_confirmation_s_figures_are_what_counts(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(2000.0))
    study.add_confirmation(FAST, trial_result(1900.0, required_device_bytes=110 * MIB))

    best = best_so_far(study)

    assert best is not None
    assert best.measured.tokens_per_second == 1900.0
    assert best.measured.required_device_bytes == 110 * MIB


@pytest.mark.parametrize(
    "bad",
    [
        trial_result(outcome=Outcome.OOM),
        trial_result(outcome=Outcome.HOST_OOM),
        trial_result(outcome=Outcome.NAN),
        trial_result(2000.0, required_device_bytes=2**30 + 1),
    ],
    ids=["oom", "host_oom", "nan", "above the budget"],
)
def test_a_configuration_that_did_not_hold_is_out_of_the_race(bad: object, tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(2000.0))
    add(study, SLOW, trial_result(1000.0))
    study.add_confirmation(FAST, bad)  # type: ignore[arg-type]

    best = best_so_far(study)

    assert failed_points(study) == {FAST}
    assert best is not None
    assert best.record.point == SLOW


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.TIMEOUT])
def test_a_confirmation_that_the_machine_may_have_spoilt_says_nothing(
    outcome: Outcome, tmp_path: Path
) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(2000.0))
    study.add_confirmation(FAST, trial_result(outcome=outcome))

    best = best_so_far(study)

    assert failed_points(study) == frozenset()
    assert best is not None and best.confirmation is None


def test_a_lucky_measurement_does_not_win_once_its_longer_run_is_known(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(3000.0))
    add(study, MIDDLE, trial_result(2000.0))
    study.add_confirmation(FAST, trial_result(1500.0))

    best = best_so_far(study)

    assert best is not None
    assert best.record.point == MIDDLE


def test_what_a_run_decided_stands_until_more_is_measured(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    number = add(study, FAST, trial_result(3000.0))
    add(study, MIDDLE, trial_result(2000.0))
    study.add_confirmation(FAST, trial_result(1900.0))
    study.set_note(DECIDED_NOTE, {"number": number, "trials": 2})

    decided = best_so_far(study)
    add(study, SLOW, trial_result(2500.0))
    later = best_so_far(study)

    assert decided is not None and decided.record.point == FAST
    assert later is not None and later.record.point == SLOW


def test_counts_name_every_outcome_and_leave_confirmations_out(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(2000.0))
    add(study, SLOW, trial_result(1000.0, Outcome.STOPPED))
    add(study, MIDDLE, trial_result(outcome=Outcome.HOST_OOM))
    study.add_confirmation(FAST, trial_result(1950.0))

    found = findings_json(findings_of(study))

    nothing = {"oom": 0, "timeout": 0, "crash": 0, "nan": 0, "invalid": 0}
    assert found["trials"] == nothing | {"ok": 1, "stopped": 1, "host_oom": 1}
    assert found["winner"]["trial"] == 1
    assert json.loads(json.dumps(found)) == found


def test_trials_that_only_showed_a_machine_at_fault_do_not_count(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    bad = add(study, FAST, trial_result(outcome=Outcome.CRASH))
    add(study, SLOW, trial_result(1000.0))
    study.set_note(DISREGARDED_NOTE, [bad])

    assert [record.point for record in measured_records(study)] == [SLOW]
    assert findings_of(study).counts["crash"] == 0


def test_where_nothing_fits_the_object_says_what_the_smallest_point_needs(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(outcome=Outcome.OOM))
    shortfall = Shortfall(SLOW, trial_result(500.0, required_device_bytes=1500 * MIB))
    result = RunResult(findings_of(study), 12.3456, None, shortfall, interrupted=False)

    answer = result.as_json()

    assert result.exit_code is ExitCode.NOTHING_FITS
    assert answer["winner"] is None and answer["export_dir"] is None
    assert answer["smallest_needed_bytes"] == 1500 * MIB
    assert answer["wall_seconds"] == 12.346


def test_an_interrupted_run_exits_with_130_whatever_it_found(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    add(study, FAST, trial_result(2000.0))

    result = RunResult(findings_of(study), 1.0, tmp_path, None, interrupted=True)

    assert result.exit_code is ExitCode.INTERRUPTED
    assert result.as_json()["winner"]["confirmed"] is False


def _other_process() -> subprocess.Popen[str]:
    """A process that says who it is and then waits."""
    program = """
import json, sys
from dataclasses import asdict
from autotune.tuning.ownership import Owner
print(json.dumps(asdict(Owner.this_process())), flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)


def test_a_study_that_a_live_process_tunes_is_refused_and_a_dead_one_s_is_taken(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    with _other_process() as process:
        assert process.stdout is not None
        study.set_note("owner", json.loads(process.stdout.readline()))
        with pytest.raises(UsageError, match=str(process.pid)):
            take(study)
        os.kill(process.pid, signal.SIGKILL)
    take(study)

    owner = owner_of(study)
    assert owner == Owner.this_process()
    assert owner.is_running() is True
    give_back(study)
    assert owner_of(study) is None


def test_a_study_is_not_given_back_by_a_process_that_does_not_have_it(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    study.set_note("owner", {"host": "elsewhere", "pid": 1, "started": 0.0})
    give_back(study)

    owner = owner_of(study)
    assert owner is not None
    # Another machine's processes cannot be seen from here.
    assert owner.is_running() is None


def test_trials_files_are_gone_after_each_and_logs_stay(tmp_path: Path) -> None:
    folders = study_folders(tmp_path, "study-1", default_storage_url(), None)
    work = folders.fresh_work()
    (work / "checkpoint").write_text("large")

    assert list(folders.fresh_work().iterdir()) == []
    folders.clear_work()
    assert not (tmp_path / "work").exists()
    assert folders.log_of("trial-1") == tmp_path / "logs" / "study-1" / "trial-1.log"
    assert folders.export == Path("autotune-out") / "study-1"
    assert (
        study_folders(tmp_path, "study-1", default_storage_url(), tmp_path / "out").export == tmp_path / "out"
    )


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_writable(tmp_path / "new" / "folder", "logs")

    with pytest.raises(EnvironmentProblem, match="cannot write logs to"):
        check_writable(tmp_path / "file" / "folder", "logs")
