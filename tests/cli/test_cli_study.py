"""`autotune study`: what it writes, what it refuses, and that nothing goes without being asked."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
import pytest
from cli_process import InProcess
from study_samples import GOOD, add, make_study, result_of

from autotune.study import Study, StudyInputs, StudySummary, list_studies
from autotune.study.pruning import prunable
from autotune.tuning.folders import study_folders

HERE = ("--storage", "sqlite:///s.db")
THERE = ("--storage", "sqlite:///t.db")


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


def test_a_study_goes_to_another_storage_through_a_file(in_process: InProcess, filled: Study) -> None:
    done = in_process("study", "export", "f.jsonl", *HERE, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "file": "f.jsonl",
        "study": filled.name,
        "trials": 3,
        "confirmations": 1,
    }

    done = in_process("study", "import", "f.jsonl", *THERE, "--json")
    assert json.loads(done.stdout) == {
        "study": filled.name,
        "trials": 3,
        "confirmations": 1,
        "new": True,
    }
    here, there = in_process("best", *HERE, "--json"), in_process("best", *THERE, "--json")
    assert there.stdout == here.stdout

    again = in_process("study", "import", "f.jsonl", *THERE)
    assert again.returncode == 0 and "nothing was done" in again.stdout


def test_a_study_goes_through_a_pipe(
    in_process: InProcess, filled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = in_process("study", "export", "-", "--study", filled.name, *HERE).stdout
    assert len(text.splitlines()) == 5
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert in_process("study", "import", "-", *THERE, "--as", "mine").returncode == 0
    assert [summary.name for summary in list_studies("sqlite:///t.db")] == ["mine"]


def test_no_file_and_no_study_is_overwritten(in_process: InProcess, filled: Study, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text("precious")
    done = in_process("study", "export", "f.jsonl", *HERE)
    assert done.returncode == 2 and "--force" in done.stderr
    assert (tmp_path / "f.jsonl").read_text() == "precious"
    assert in_process("study", "export", "f.jsonl", "--force", *HERE).returncode == 0

    add(filled, GOOD.model_copy(update={"lora_rank": 64}), result_of(GOOD))
    done = in_process("study", "import", "f.jsonl", *HERE)
    assert done.returncode == 2 and "--as NAME" in done.stderr
    assert len(filled.records()) == 4
    assert in_process("study", "import", "f.jsonl", *HERE, "--as", "mine").returncode == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00binary", "not text"),
        (b"", "empty"),
        (b'{"format": "autotune-study", "format_version": 99}\n', "newer version"),
    ],
)
def test_a_file_that_cannot_be_imported_makes_no_storage(
    in_process: InProcess, tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "f.jsonl").write_bytes(content)
    done = in_process("study", "import", "f.jsonl", *THERE)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 2
    assert not (tmp_path / "t.db").exists()


def test_a_file_that_is_not_there_is_told(in_process: InProcess) -> None:
    done = in_process("study", "import", "nowhere.jsonl", *THERE)
    assert done.returncode == 2 and "nowhere.jsonl" in done.stderr
    done = in_process("study", "export", "nowhere/f.jsonl", *THERE)
    assert done.returncode == 2


def test_copies_need_a_place_or_a_name(in_process: InProcess, filled: Study) -> None:
    assert in_process("study", "copy", *HERE).returncode == 2
    assert in_process("study", "copy", filled.name, *HERE, "--to", "sqlite:///t.db").returncode == 0
    assert in_process("study", "copy", *HERE, "--as", "second").returncode == 0
    assert in_process("study", "copy", "second", "--study", "third", *HERE, "--as", "x").returncode == 2
    assert {s.name for s in list_studies("sqlite:///s.db")} == {filled.name, "second"}
    assert [s.name for s in list_studies("sqlite:///t.db")] == [filled.name]


def test_nothing_is_deleted_unasked(
    in_process: InProcess, filled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    done = in_process("study", "delete", filled.name, *HERE)
    assert done.returncode == 2 and "--yes" in done.stderr and filled.name in done.stderr
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert in_process("study", "delete", filled.name, *HERE).returncode == 130
    assert in_process("study", "delete", *HERE).returncode == 2
    assert len(list_studies("sqlite:///s.db")) == 1

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    done = in_process("study", "delete", filled.name, *HERE, "--json")
    assert json.loads(done.stdout) == {"deleted": [filled.name]}
    assert list_studies("sqlite:///s.db") == ()


def test_of_several_names_one_that_is_wrong_keeps_all(in_process: InProcess, filled: Study) -> None:
    done = in_process("study", "delete", filled.name, filled.name[:-1], "--yes", *HERE)
    assert done.returncode == 2 and filled.name in done.stderr
    assert len(list_studies("sqlite:///s.db")) == 1


def test_a_study_that_another_process_tunes_stays(in_process: InProcess, filled: Study) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        import psutil

        started = psutil.Process(other.pid).create_time()
        host = os.uname().nodename
        filled.set_note("owner", {"host": host, "pid": other.pid, "started": started})
        done = in_process("study", "delete", filled.name, "--yes", *HERE)
        assert done.returncode == 2 and str(other.pid) in done.stderr
        pruned = in_process("study", "prune", "--keep", "0", "--yes", *HERE, "--json")
        assert json.loads(pruned.stdout) == {"deleted": []}
        other.communicate(b"\n")
    assert in_process("study", "delete", filled.name, "--yes", *HERE).returncode == 0


def test_a_study_of_another_host_goes_only_when_it_is_old(in_process: InProcess, filled: Study) -> None:
    filled.set_note("owner", {"host": "elsewhere", "pid": 7, "started": 0.0})
    done = in_process("study", "delete", filled.name, "--yes", *HERE)
    assert done.returncode == 2 and "elsewhere" in done.stderr
    stored = optuna.load_study(study_name=filled.name, storage="sqlite:///s.db")
    stored.set_user_attr("opened_at", (datetime.now(UTC) - timedelta(days=3)).isoformat())
    assert in_process("study", "delete", filled.name, "--yes", *HERE).returncode == 0


@pytest.mark.parametrize("place", ["data/autotune/studies.db", "s.db"], ids=["default", "other"])
def test_the_logs_go_with_a_study(in_process: InProcess, tmp_path: Path, place: str) -> None:
    url = f"sqlite:///{tmp_path / place}"
    mine, other = make_study(url), make_study(url, seq_len=64)
    data = tmp_path / "data/autotune"
    logs = [study_folders(data, study.name, url, None).logs for study in (mine, other)]
    for folder in logs:
        folder.mkdir(parents=True)
        (folder / "trial-1.log").touch()
    assert in_process("study", "delete", mine.name, "--yes", "--storage", url).returncode == 0
    assert [folder.exists() for folder in logs] == [False, True]


def test_old_studies_are_shown_and_pruned(in_process: InProcess, filled: Study) -> None:
    old = make_study("sqlite:///s.db", seq_len=64)
    stored = optuna.load_study(study_name=old.name, storage="sqlite:///s.db")
    stored.set_user_attr("opened_at", (datetime.now(UTC) - timedelta(days=91)).isoformat())

    assert in_process("study", "prune", *HERE).returncode == 2
    shown = in_process("study", "prune", "--older-than", "90d", *HERE)
    assert shown.returncode == 2 and old.name in shown.stderr and filled.name not in shown.stderr
    assert len(list_studies("sqlite:///s.db")) == 2
    kept = in_process("study", "prune", "--older-than", "90d", "--keep", "2", "--yes", *HERE)
    assert kept.returncode == 0 and "nothing to delete" in kept.stdout
    done = in_process("study", "prune", "--older-than", "90d", "--yes", *HERE, "--json")
    assert json.loads(done.stdout) == {"deleted": [old.name]}
    assert [summary.name for summary in list_studies("sqlite:///s.db")] == [filled.name]


def summary(name: str, days: int, inputs: StudyInputs) -> StudySummary:
    opened = datetime(2026, 6, 30, tzinfo=UTC) - timedelta(days=days)
    return StudySummary(name, opened, opened, inputs, {}, 0, None)


def test_pruning_counts_from_the_last_run_and_keeps_the_newest(filled: Study) -> None:
    now = datetime(2026, 6, 30, tzinfo=UTC)
    studies = [summary(name, days, filled.inputs) for name, days in zip("abcd", (100, 90, 5, 1), strict=True)]

    def names(days: int | None, keep: int | None, running: tuple[str, ...] = ()) -> str:
        age = None if days is None else timedelta(days=days)
        found = prunable(studies, now, older_than=age, keep=keep, running=running)
        return "".join(one.name for one in found)

    assert names(90, None) == "a"
    assert names(89, None) == "ba"
    assert names(None, 1) == "cba"
    assert names(None, 0) == "dcba"
    assert names(4, 3) == "a"
    assert names(0, 9) == ""
    # One that runs stays, and the newest two beside it.
    assert names(None, 2, running=("d",)) == "a"


def test_a_newer_autotunes_study_is_named_and_the_others_are_listed(
    in_process: InProcess, filled: Study
) -> None:
    newer = make_study("sqlite:///s.db", seq_len=64)
    stored = optuna.load_study(study_name=newer.name, storage="sqlite:///s.db")
    stored.set_user_attr("autotune_schema", 99)

    done = in_process("list", *HERE, "--json")

    assert [one["study"] for one in json.loads(done.stdout)] == [filled.name]
    assert newer.name in done.stderr and "newer version" in done.stderr
    assert in_process("study", "delete", newer.name, "--yes", *HERE).returncode == 2
