from __future__ import annotations

import json
import os
import resource
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import EnvironmentProblem
from autotune.export import check_export_folder, export_folder, folder_files


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_new_folder_holds_the_files_and_nothing_else(make_winner: Any, tmp_path: Path) -> None:
    winner = make_winner(lora_rank=8)
    folder = export_folder(winner, tmp_path / "a" / "b")
    assert folder == tmp_path / "a" / "b"
    assert contents(folder) == folder_files(winner)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_the_folder_can_be_read_by_whom_the_umask_lets(make_winner: Any, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        folder = export_folder(make_winner(), tmp_path / "out")
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "train.py").stat().st_mode) == 0o644


def test_an_earlier_export_is_replaced_and_the_users_files_stay(make_winner: Any, tmp_path: Path) -> None:
    folder = export_folder(make_winner(lora_rank=8, quantization="nf4"), tmp_path)
    (folder / "notes.txt").write_text("mine")
    (folder / "runs").mkdir()
    winner = make_winner(zero_stage=2)
    export_folder(winner, folder)
    assert {p.name for p in folder.iterdir()} == {*folder_files(winner), "notes.txt", "runs"}
    assert (folder / "notes.txt").read_text() == "mine"
    assert json.loads((folder / "ds_config.json").read_text()) == winner.result.ds_config


@pytest.mark.parametrize("name", ["README.md", "train.py", "ds_config.json", "autotune.json"])
def test_a_file_of_the_user_is_not_overwritten(make_winner: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(EnvironmentProblem, match=name):
        check_export_folder(tmp_path)
    with pytest.raises(EnvironmentProblem, match="--export-dir"):
        export_folder(make_winner(), tmp_path)
    assert contents(tmp_path) == {name: "{}"}


def test_a_folder_in_a_files_place_is_refused_before_anything_is_written(
    make_winner: Any, tmp_path: Path
) -> None:
    winner = make_winner()
    export_folder(winner, tmp_path)
    (tmp_path / "train.py").unlink()
    (tmp_path / "train.py").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"train\.py"):
        export_folder(make_winner(zero_stage=2), tmp_path)
    assert json.loads((tmp_path / "ds_config.json").read_text()) == winner.result.ds_config


def test_a_file_is_not_a_folder(make_winner: Any, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(EnvironmentProblem, match="not a folder"):
        export_folder(make_winner(), tmp_path / "out")


def test_below_a_file_nothing_can_be_written(make_winner: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        export_folder(make_winner(), tmp_path / "file" / "out")


def test_a_place_that_cannot_be_written_is_left_as_it_was(make_winner: Any, tmp_path: Path) -> None:
    # A name that is too long fails for every user, root included; its parents do not exist yet.
    folder = tmp_path / "new" / ("x" * 300)
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        export_folder(make_winner(), folder)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_half_written(make_winner: Any, tmp_path: Path) -> None:
    winner = make_winner(zero_stage=1)
    export_folder(winner, tmp_path / "out")
    before = contents(tmp_path / "out")
    # The operating system itself refuses to let files grow beyond this, as a full disk would.
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="cannot write"):
            export_folder(make_winner(zero_stage=2), tmp_path / "out")
        with pytest.raises(EnvironmentProblem, match="cannot write"):
            export_folder(make_winner(zero_stage=2), tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert contents(tmp_path / "out") == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
