"""The variables a trial runs under."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from autotune.running.environment import trial_environment

ROOT = str(Path(__file__).resolve().parents[2])


def test_expandable_segments_are_on_whatever_the_user_has_set() -> None:
    for given in (
        {},
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},
        {"PYTORCH_ALLOC_CONF": "backend:native"},
    ):
        environment = trial_environment("cuda", given)
        assert environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
        # torch 2.11 would prefer this name.
        assert "PYTORCH_ALLOC_CONF" not in environment


def test_torch_asks_nvml_for_cuda_so_that_a_fork_survives() -> None:
    assert trial_environment("cuda", {})["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"


def test_on_the_cpu_no_gpu_is_to_be_found() -> None:
    environment = trial_environment("cpu", {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["DS_ACCELERATOR"] == "cpu"


def test_the_users_choice_of_gpu_and_of_waiting_threads_stays() -> None:
    assert trial_environment("cuda", {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == "3"
    assert "GOMP_SPINCOUNT" in trial_environment("cpu", {})
    waiting = trial_environment("cpu", {"OMP_WAIT_POLICY": "ACTIVE"})
    assert waiting["OMP_WAIT_POLICY"] == "ACTIVE" and "GOMP_SPINCOUNT" not in waiting
    assert "DS_ACCELERATOR" not in trial_environment("cuda", {})


def test_this_project_is_importable_from_anywhere_before_what_the_user_has(tmp_path: Path) -> None:
    environment = trial_environment(
        "cpu", {"PYTHONPATH": os.pathsep.join(["/somewhere", "", ROOT]), "PATH": "/bin"}
    )
    assert environment["PYTHONPATH"].split(os.pathsep) == [ROOT, "/somewhere"]
    programs = environment["PATH"].split(os.pathsep)
    assert programs[-1] == "/bin"
    # The operators are always built by the same ninja, whether the environment is activated or not.
    ninja = Path(sys.executable).parent / "ninja"
    assert shutil.which("ninja", path=environment["PATH"]) == (str(ninja) if ninja.exists() else None)
    found = subprocess.run(
        [sys.executable, "-c", "import trials.wire; print(trials.wire.__file__)"],
        env=trial_environment("cpu", os.environ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.strip() == str(Path(ROOT) / "trials" / "wire.py")


def test_the_given_environment_is_left_as_it_is() -> None:
    given = {"PYTORCH_ALLOC_CONF": "backend:native"}
    trial_environment("cpu", given)
    assert given == {"PYTORCH_ALLOC_CONF": "backend:native"}
