"""Where a study's files go, whatever its name is."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.study import default_storage_url
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


@pytest.mark.parametrize("url", [default_storage_url(), "sqlite:///other.db"], ids=["default", "other"])
@pytest.mark.parametrize("name", ODD)
def test_a_name_that_looks_like_a_path_leads_nowhere_else(tmp_path: Path, name: str, url: str) -> None:
    folders = study_folders(tmp_path, name, url, None)
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
        folders = study_folders(tmp_path / "data", name, default_storage_url(), None)
        folders.fresh_work()
        folders.clear_work()
    assert (mine / "thesis.txt").read_text() == "years"


def test_different_names_have_different_folders_and_usual_ones_their_own() -> None:
    names = [*ODD, "a/b", "a%2Fb", "é" * 254, "%2E", "%2E%2E"]
    assert len({folder_name(name) for name in names}) == len(names)
    assert folder_name("qwen2.5-1.5b lora (24 GiB)") == "qwen2.5-1.5b lora (24 GiB)"
    assert default_export_folder("a/b") == Path("autotune-out") / "a%2Fb"


def test_studies_of_one_name_in_two_storages_share_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    usual = f"sqlite:///{tmp_path}/share/autotune/studies.db"
    urls = (
        "sqlite:///a.db",
        "sqlite:///b.db",
        usual,
        "postgresql://me:secret@host/db",
        "postgresql://host/db",
    )
    folders = [study_folders(tmp_path, "s", url, None) for url in urls]
    assert len({one.logs for one in folders}) == len({one.work for one in folders}) == len(urls)
    assert folders[2].logs == tmp_path / "logs" / "s"
    # The same file, and the same server with another password, are the same storage.
    same = [(f"sqlite:///{tmp_path}/a.db", 0), ("postgresql://me:changed@host/db", 3)]
    for url, number in same:
        assert study_folders(tmp_path, "s", url, None) == folders[number]
    assert study_folders(tmp_path, f"s{folders[0].logs.name[1:]}", usual, None).logs != folders[0].logs
