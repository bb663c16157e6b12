"""Folders outside a study are tried before anything starts, and the refusal names what sets them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from prediction_samples import h200
from session_samples import make_task
from tuning_samples import add, empty_study, trial_result

from autotune.errors import EnvironmentProblem
from autotune.tuning.needed_folders import check_operators_folder, make_data_folder
from autotune.tuning.tune import stopping_words
from trials.wire import Outcome, Point


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A folder that cannot be made, not by root either."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "folder"


def test_a_folder_of_operators_that_cannot_be_made_is_refused_where_operators_are_needed(
    tmp_path: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(nowhere))
    machine = dataclasses.replace(h200(), host_compiler=True, cuda_compiler=True)
    with pytest.raises(EnvironmentProblem, match=r"operators to .*file/folder: Not a directory") as refused:
        check_operators_folder(make_task(tmp_path, "full", machine=machine))
    assert "TORCH_EXTENSIONS_DIR" in refused.value.hint
    # Where none can be compiled none is asked for.
    check_operators_folder(
        make_task(tmp_path, "full", machine=dataclasses.replace(machine, host_compiler=False))
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("locked", [".", "fused_adam"])
def test_a_folder_of_operators_that_is_not_ones_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    root = tmp_path / "operators"
    (root / "fused_adam").mkdir(parents=True)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(root))
    machine = dataclasses.replace(h200(), host_compiler=True, cuda_compiler=True)
    (root / locked).chmod(0o555)
    try:
        with pytest.raises(EnvironmentProblem, match="Permission denied"):
            check_operators_folder(make_task(tmp_path, "full", machine=machine))
    finally:
        (root / locked).chmod(0o755)


def test_a_data_folder_that_cannot_be_made_names_its_variable(tmp_path: Path, nowhere: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot write the trials' logs") as refused:
        make_data_folder(nowhere, "the trials' logs")
    assert "XDG_DATA_HOME" in refused.value.hint
    make_data_folder(tmp_path / "logs", "the trials' logs")
    assert (tmp_path / "logs").is_dir()


def test_who_stops_is_told_of_a_best_only_where_there_is_one(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    assert "no best yet" in stopping_words(study)
    add(study, Point(micro_batch_size=64), trial_result(outcome=Outcome.OOM))
    assert "1 trial ended and is kept, but none is good" in stopping_words(study)
    add(study, Point(), trial_result(100.0))
    assert "the best so far is kept" in stopping_words(study)
