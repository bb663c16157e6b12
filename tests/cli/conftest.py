from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from cli_process import Autotune, InProcess
from study_samples import filled_study

from autotune.study import Study


@pytest.fixture
def autotune(tmp_path: Path) -> Autotune:
    """The command line as processes of their own in a temporary folder."""
    return Autotune(tmp_path)


@pytest.fixture(scope="session")
def filled_storage(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file of a storage with one study, and the study's name; to be copied, not to be used."""
    folder = tmp_path_factory.mktemp("storage")
    return folder / "s.db", filled_study(folder).name


@pytest.fixture
def filled(filled_storage: tuple[Path, str], tmp_path: Path) -> Study:
    """The study of `study_samples.filled_study`, in `s.db` of the temporary folder."""
    file, name = filled_storage
    shutil.copy(file, tmp_path / "s.db")
    return Study.load(f"sqlite:///{tmp_path / 's.db'}", name)


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcess:
    """The command line in this process, in a temporary folder."""
    for name in [name for name in os.environ if name.startswith("AUTOTUNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    return InProcess(monkeypatch, capsys)
