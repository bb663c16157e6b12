"""The doctor's lines and what they come to."""

from __future__ import annotations

import json
from pathlib import Path

from cli_process import InProcess

from autotune.cli.doctor.check import Check
from autotune.cli.doctor.command import is_ready, report
from autotune.cli.doctor.folders import folder_check
from autotune.cli.doctor.versions import library_check


def test_a_library_is_judged_by_the_versions_that_were_tested() -> None:
    tested = ("2.11.0", "2.13.0")

    assert library_check("torch", "2.13.0+cu130", tested, "", required=True).verdict == "ok"
    assert library_check("torch", "2.11.0", tested, "", required=True).verdict == "ok"
    assert library_check("torch", "2.14.0", tested, "", required=True).verdict == "warn"
    assert library_check("torch", None, tested, "pip install torch", required=True).verdict == "fail"
    assert library_check("liger-kernel", None, tested, "", required=False).verdict == "warn"


def test_a_folder_that_cannot_be_written_fails_and_one_that_can_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    blocked = folder_check("data folder", tmp_path / "file" / "autotune", "set XDG_DATA_HOME")
    free = folder_check("data folder", tmp_path / "new" / "autotune", "")

    assert (blocked.verdict, blocked.hint) == ("fail", "set XDG_DATA_HOME")
    assert free.verdict in ("ok", "warn")
    assert not (tmp_path / "new").exists()


def test_one_failure_makes_the_machine_not_ready_and_a_warning_does_not() -> None:
    good, odd = Check("a", "ok", "fine"), Check("b", "warn", "odd", "look at it")
    bad = Check("c", "fail", "gone", "get it back")

    assert is_ready([good, odd])
    assert not is_ready([good, odd, bad])
    assert report([good, odd, bad]).splitlines()[-1] == "not ready: c"
    assert "-> look at it" in report([good, odd])


def test_a_data_folder_that_cannot_be_made_exits_with_2(in_process: InProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = in_process("doctor", "--json", XDG_DATA_HOME=str(tmp_path / "file"))

    answer = json.loads(done.stdout)
    assert done.returncode == 2
    assert answer["ready"] is False
    failed = [check["name"] for check in answer["checks"] if check["verdict"] == "fail"]
    assert failed == ["data folder"]
