"""`autotune report` as its user starts it: where the page goes, and what can be wrong with that place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_studies import WINNER, add, bad, good, new_study

from autotune.cli.main import main
from trials.wire import Outcome

ROOT = Path(__file__).resolve().parents[2]
STORAGE = ("--storage", "sqlite:///s.db")


@pytest.fixture
def study_name(alone: Path) -> str:
    """A study of one trial in `s.db` of the working folder."""
    study = new_study(alone)
    add(study, WINNER, good(WINNER))
    return study.name


def test_the_page_is_written_and_its_place_and_size_are_told(
    study_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *STORAGE, "--study", study_name, "--output", "r.html", "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told == {"study": study_name, "output": "r.html", "size_bytes": Path("r.html").stat().st_size}
    assert Path("r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "cannot be predicted here" in captured.err


def test_without_an_output_the_page_has_the_studys_name(
    study_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *STORAGE]) == 0
    assert capsys.readouterr().out.startswith(f"{study_name}.html (")
    assert Path(f"{study_name}.html").is_file()


def test_a_study_without_a_winner_has_a_page_too(
    tmp_path: Path, study_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study = new_study(tmp_path, seq_len=2048)
    add(study, WINNER, bad(Outcome.OOM))
    assert main(["report", *STORAGE, "--study", study.name, "--output", "r.html"]) == 0
    assert "Nothing that was tried fits" in Path("r.html").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nowhere/r.html", "error: cannot write nowhere/r.html: there is no folder nowhere"),
        (".", "error: cannot write .: it is a folder"),
        ("s.db/r.html", "error: cannot write s.db/r.html: there is no folder s.db"),
        ("/dev/full", "error: cannot write /dev/full: No space left on device"),
    ],
)
def test_a_place_that_cannot_be_written_is_said_in_a_line(
    output: str, message: str, study_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *STORAGE, "--output", output]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines and "Traceback" not in "".join(lines)


def test_where_there_is_no_room_the_old_page_stays_and_nothing_is_left_behind(
    study_name: str, tmp_path: Path
) -> None:
    Path("r.html").write_text("the old page", encoding="utf-8")
    # No file may grow beyond a megabyte, which is what a full disk is like half way through the page.
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)); "
        "from autotune.cli.main import main; "
        f"sys.exit(main(['report', *{STORAGE!r}, '--output', 'r.html']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", limited], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and "error: cannot write r.html: File too large" in done.stderr
    assert Path("r.html").read_text(encoding="utf-8") == "the old page"
    assert list(tmp_path.glob(".autotune-*")) == []


def test_a_page_is_put_where_a_link_points(study_name: str) -> None:
    Path("kept").mkdir()
    Path("r.html").symlink_to("kept/r.html")
    assert main(["report", *STORAGE, "--output", "r.html"]) == 0
    assert Path("r.html").is_symlink() and Path("kept/r.html").stat().st_size > 100_000


def test_secrets_of_the_storages_url_are_nowhere_in_the_page(tmp_path: Path, study_name: str) -> None:
    study = new_study(tmp_path, seq_len=512)
    url = f"sqlite:///{tmp_path / 's.db'}?token=s3cr3t-t0ken"
    study.set_note("command", f"autotune run --model m --storage '{url}'")
    add(study, WINNER, bad(Outcome.CRASH, message="cannot reach the store with s3cr3t-t0ken"))
    assert main(["report", "--storage", url, "--study", study.name, "--output", "r.html"]) == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "s3cr3t" not in page and "token=***" in page and "with ***" in page
