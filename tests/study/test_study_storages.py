"""What can be wrong with a storage is told in two lines, without secrets, and nothing is harmed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autotune.errors import AutotuneError, EnvironmentProblem, UsageError
from autotune.study import Study, StudyInputs, latest_study, list_studies


def complaint(url: str, inputs: StudyInputs) -> AutotuneError:
    with pytest.raises(AutotuneError) as caught:
        Study.open(url, inputs)
    for read in (list_studies, latest_study, lambda url: Study.load(url, "x")):
        with pytest.raises(AutotuneError):
            read(url)
            raise UsageError("an SQLite file that does not exist is an empty storage to readers")
    assert len(str(caught.value).splitlines()) <= 2
    return caught.value


def test_a_relative_file_is_created_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: StudyInputs
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list_studies("sqlite:///s.db") == ()
    assert not list(tmp_path.iterdir())
    Study.open("sqlite:///s.db", inputs)
    assert (tmp_path / "s.db").exists()


def test_the_default_folder_is_created_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: StudyInputs
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a" / "b"))
    Study.open(f"sqlite:///{tmp_path}/a/b/autotune/studies.db", inputs)
    assert (tmp_path / "a/b/autotune/studies.db").exists()


def test_a_default_folder_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: StudyInputs
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    error = complaint(f"sqlite:///{tmp_path}/file/autotune/studies.db", inputs)
    assert "cannot be created" in error.message and "--storage" in error.hint


def test_another_folder_that_does_not_exist_is_told_not_made(tmp_path: Path, inputs: StudyInputs) -> None:
    error = complaint(f"sqlite:///{tmp_path}/nowhere/s.db", inputs)
    assert isinstance(error, EnvironmentProblem) and "does not exist" in error.message
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission_is_told(tmp_path: Path, inputs: StudyInputs) -> None:
    tmp_path.chmod(0o500)
    try:
        assert isinstance(complaint(f"sqlite:///{tmp_path}/s.db", inputs), EnvironmentProblem)
    finally:
        tmp_path.chmod(0o700)


def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path, inputs: StudyInputs) -> None:
    path = tmp_path / "s.db"
    path.write_text("certainly not a database, but long enough to have a header of its own\n" * 20)
    before = path.read_bytes()
    error = complaint(f"sqlite:///{path}", inputs)
    assert isinstance(error, EnvironmentProblem) and "not a database" in error.message
    assert path.read_bytes() == before


def test_a_damaged_database_is_told(tmp_path: Path, inputs: StudyInputs) -> None:
    path = tmp_path / "s.db"
    Study.open(f"sqlite:///{path}", inputs)
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\x55" * 3996
    path.write_bytes(bytes(content))
    assert isinstance(complaint(f"sqlite:///{path}", inputs), EnvironmentProblem)


def test_somebody_elses_database_is_told_and_left_alone(tmp_path: Path, inputs: StudyInputs) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.commit()
    before = path.read_bytes()
    error = complaint(f"sqlite:///{path}", inputs)
    assert isinstance(error, EnvironmentProblem) and "something else" in error.message
    assert path.read_bytes() == before


def test_a_folder_in_the_files_place_is_told(tmp_path: Path, inputs: StudyInputs) -> None:
    assert isinstance(complaint(f"sqlite:///{tmp_path}", inputs), EnvironmentProblem)


def test_an_empty_file_becomes_a_storage(tmp_path: Path, inputs: StudyInputs) -> None:
    (tmp_path / "s.db").touch()
    assert Study.open(f"sqlite:///{tmp_path}/s.db", inputs).records() == ()


def test_odd_paths_work(tmp_path: Path, inputs: StudyInputs) -> None:
    folder = tmp_path / "a b{c}ü#'"
    folder.mkdir()
    url = f"sqlite:///{folder}/s.db"
    name = Study.open(url, inputs).name
    assert (folder / "s.db").exists() and latest_study(url) == name


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "s.db", "/tmp/s.db", "", "redis"])
def test_what_is_no_lasting_storage_is_a_usage_error(url: str, inputs: StudyInputs) -> None:
    assert isinstance(complaint(url, inputs), UsageError)


@pytest.mark.parametrize(
    "url",
    ["nosuch://me:hunter2@localhost/db", "mysql+nosuch://me:hunter2@localhost/db", "oracle://me:hunter2@h/d"],
)
def test_an_unknown_database_is_told_without_the_password(url: str, inputs: StudyInputs) -> None:
    error = complaint(url, inputs)
    assert isinstance(error, EnvironmentProblem) and "driver" in error.message
    assert "hunter2" not in str(error)


def test_an_unreachable_server_is_told_without_the_password(inputs: StudyInputs) -> None:
    error = complaint("postgresql://me:hunter2{x}@127.0.0.1:1/db", inputs)
    assert isinstance(error, EnvironmentProblem)
    assert "hunter2" not in str(error)


def test_a_study_of_a_newer_version_is_refused(storage_url: str, inputs: StudyInputs) -> None:
    name = Study.open(storage_url, inputs).name
    optuna.load_study(study_name=name, storage=storage_url).set_user_attr("autotune_schema", 99)
    for use in (lambda: Study.open(storage_url, inputs), lambda: Study.load(storage_url, name)):
        with pytest.raises(EnvironmentProblem, match="newer version of autotune"):
            use()
    assert latest_study(storage_url) == name


def test_a_study_whose_making_was_interrupted_is_completed(storage_url: str, inputs: StudyInputs) -> None:
    optuna.create_study(storage=storage_url, study_name=inputs.study_name(), direction="maximize")
    assert list_studies(storage_url) == ()
    assert Study.open(storage_url, inputs).inputs == inputs
    assert Study.load(storage_url, inputs.study_name()).inputs == inputs
