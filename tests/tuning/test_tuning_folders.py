"""Where a study's files go, whatever its name is."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.tuning.folders import (
    LONGEST_FOLDER_NAME,
    Folders,
    default_export_folder,
    folder_name,
    study_folders,
)

ODD = (
    "../mine",
    "/etc",
    "..",
    ".",
    "a/../b",
    "a\\b",
    "nosuch/../x",
    "meta-llama/Llama-3",
    "%2Fetc",
    "é" * 255,
)


def all_of(folders: Folders) -> tuple[Path, Path, Path]:
    return folders.logs, folders.work, folders.export


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_looks_like_a_path_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    folders = study_folders(tmp_path, name, None)
    for folder, parent in zip(
        all_of(folders), (tmp_path / "logs", tmp_path / "work", Path("autotune-out")), strict=True
    ):
        assert folder.parent == parent
        assert folder.resolve().parent == parent.resolve()
    assert len(folders.logs.name.encode()) <= LONGEST_FOLDER_NAME


def test_emptying_the_work_folder_touches_nothing_else(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    for name in (str(mine), "../mine", "../../mine"):
        folders = study_folders(tmp_path / "data", name, None)
        folders.fresh_work()
        folders.clear_work()
    assert (mine / "thesis.txt").read_text() == "years"


def test_different_names_have_different_folders_and_usual_ones_their_own() -> None:
    names = [*ODD, "a/b", "a%2Fb", "é" * 254, "%2E", "%2E%2E"]
    assert len({folder_name(name) for name in names}) == len(names)
    assert folder_name("qwen2.5-1.5b lora (24 GiB)") == "qwen2.5-1.5b lora (24 GiB)"
    assert default_export_folder("a/b") == Path("autotune-out") / "a%2Fb"
