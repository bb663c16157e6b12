"""`autotune run` for real: engines on the CPU under a real memory limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_process import Autotune

pytestmark = pytest.mark.slow

MIB = 2**20
# Four points, of which the two without checkpointing at the larger micro batch need several times the others.
SPACE = "micro_batch_size: [1, 16]\ncheckpoint_fraction: [0, 1]\nlora_rank: [16]\n"
OUTCOMES = {"ok", "stopped", "oom", "host_oom", "timeout", "crash", "nan", "invalid"}


def _arguments(budget: str, *more: str) -> list[str]:
    return [
        "run", "--model", "tiny-llama", "--device", "cpu", "--gpu-budget", budget, "--method", "lora",
        "--seq-len", "128", "--global-batch", "16", "--space", "space.yaml", "--storage", "sqlite:///s.db",
        "--export-dir", "out", "--json", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Autotune, subprocess.CompletedProcess[str]]:
    """A study in which one of four points does not fit."""
    autotune = Autotune(tmp_path_factory.mktemp("tuned"))
    (autotune.folder / "space.yaml").write_text(SPACE)
    return autotune, autotune(*_arguments("260MB", "--trials", "12", "--log-file", "run.log"))


Tuned = tuple[Autotune, subprocess.CompletedProcess[str]]


def _object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stderr
    return dict(json.loads(lines[0]))


def test_one_object_says_what_won_and_what_happened(tuned: Tuned) -> None:
    _, done = tuned
    answer = _object(done)

    assert done.returncode == 0, done.stderr
    assert {"study", "winner", "trials", "wall_seconds", "export_dir"} <= answer.keys()
    assert set(answer["trials"]) == OUTCOMES
    assert sum(answer["trials"].values()) == 4
    winner = answer["winner"]
    assert winner["confirmed"] is True
    assert winner["tokens_per_second"] > 0
    assert 0 < winner["required_device_bytes"] <= 260 * MIB
    assert 0 < winner["device_bytes"] <= 260 * MIB
    assert winner["point"]["lora_rank"] == 16


def test_a_point_that_does_not_fit_is_a_real_oom_and_the_study_goes_on(tuned: Tuned) -> None:
    autotune, done = tuned
    answer = _object(done)

    assert answer["trials"]["oom"] == 1
    assert answer["trials"]["ok"] + answer["trials"]["stopped"] == 3
    shown = json.loads(autotune("show", "--storage", "sqlite:///s.db", "--json").stdout)
    [oom] = [trial for trial in shown["trials"] if trial["result"]["outcome"] == "oom"]
    assert (oom["point"]["micro_batch_size"], oom["point"]["checkpoint_fraction"]) == (16, 0.0)
    assert Path(oom["log"]).exists()


def test_progress_is_one_line_per_trial_on_stderr_and_in_the_log_file(tuned: Tuned) -> None:
    autotune, done = tuned

    lines = done.stderr.splitlines()
    assert lines[0].startswith("autotune ") and "tiny-llama" in lines[0] and "cpu" in lines[0]
    assert len([line for line in lines if line.startswith("trial  ")]) == 4
    assert "\x1b" not in done.stderr
    assert "confirmed: " in (autotune.folder / "run.log").read_text()


def test_the_first_trial_is_the_one_that_needs_least(tuned: Tuned) -> None:
    autotune, _ = tuned

    first = json.loads(autotune("show", "", "1", "--storage", "sqlite:///s.db", "--json").stdout)

    assert (first["point"]["micro_batch_size"], first["point"]["checkpoint_fraction"]) == (1, 1.0)


def test_the_winner_s_folder_holds_what_was_measured(tuned: Tuned) -> None:
    autotune, done = tuned
    point = _object(done)["winner"]["point"]

    config = json.loads((autotune.folder / "out" / "ds_config.json").read_text())
    assert config["train_micro_batch_size_per_gpu"] == point["micro_batch_size"]
    assert config["gradient_accumulation_steps"] == point["gradient_accumulation_steps"]
    assert point["micro_batch_size"] * point["gradient_accumulation_steps"] == 16
    names = {path.name for path in (autotune.folder / "out").iterdir()}
    assert {"ds_config.auto.json", "peft_config.json", "autotune.json", "train.py", "README.md"} <= names


def test_the_same_command_again_measures_nothing_twice(tuned: Tuned) -> None:
    autotune, done = tuned

    again = autotune(*_arguments("260MB", "--trials", "12"))

    assert again.returncode == 0, again.stderr
    before, after = _object(done), _object(again)
    assert after["trials"] == before["trials"]
    assert after["winner"] == before["winner"]
    assert not [line for line in again.stderr.splitlines() if line.startswith(("trial  ", "confirming"))]


def test_nothing_is_left_behind_but_studies_logs_and_the_export(tuned: Tuned) -> None:
    autotune, _ = tuned

    assert {path.name for path in autotune.folder.iterdir()} == {
        "space.yaml",
        "s.db",
        "out",
        "data",
        "run.log",
    }
    assert {path.name for path in (autotune.folder / "data" / "autotune").iterdir()} <= {
        "logs",
        "machine.json",
    }


def test_where_nothing_fits_the_smallest_need_is_measured_without_the_limit(autotune: Autotune) -> None:
    (autotune.folder / "space.yaml").write_text(SPACE)

    done = autotune(*_arguments("30MB", "--trials", "2"))

    answer = _object(done)
    assert done.returncode == 1, done.stderr
    assert answer["winner"] is None
    assert answer["trials"]["oom"] == sum(answer["trials"].values()) >= 1
    # More than the budget, and less than what was enough for the study above.
    assert 30 * MIB < answer["smallest_needed_bytes"] < 260 * MIB
    assert done.stderr.splitlines()[-2].startswith("error: nothing fits 30 MiB")
    assert "the smallest point needs" in done.stderr.splitlines()[-1]
    assert not (autotune.folder / "out").exists()


def _after_the_first_trial(process: subprocess.Popen[str]) -> None:
    """Returns while a trial runs that is not the first; on a live engine it may be over in a moment."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("trial ") and "starts" in line and not line.startswith("trial 1 of "):
            return
    raise AssertionError("the run ended early")


def _wait_for_no_process_of(folder: Path) -> None:
    """Fails if the trial process of a run in this folder is still there after some seconds."""
    import time

    def running() -> list[str]:
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            try:
                where, words = (process / "cwd").readlink(), (process / "cmdline").read_text()
            except OSError:
                continue
            if where == folder and "trials.server" in words:
                found.append(process.name)
        return found

    deadline = time.monotonic() + 20
    while running() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert running() == []


def test_ctrl_c_keeps_the_best_so_far_and_a_kill_loses_one_trial_at_most(autotune: Autotune) -> None:
    (autotune.folder / "space.yaml").write_text(SPACE)
    arguments = _arguments("1GB", "--trials", "4", "--verbose")

    process = autotune.start(*arguments)
    _after_the_first_trial(process)
    # As a terminal does it: to every process of the group.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    interrupted = json.loads(out)

    assert process.returncode == 130, err
    assert interrupted["winner"]["confirmed"] is False
    measured = sum(interrupted["trials"].values())
    assert measured in (1, 2)
    assert (autotune.folder / "out" / "ds_config.json").exists()
    _wait_for_no_process_of(autotune.folder)

    process = autotune.start(*arguments)
    _after_the_first_trial(process)
    process.kill()
    process.communicate(timeout=60)
    _wait_for_no_process_of(autotune.folder)
    status = json.loads(autotune("status", "--storage", "sqlite:///s.db", "--json").stdout)
    assert status["running"] is False
    assert sum(status["trials"].values()) in (measured, measured + 1)

    finished = autotune(*arguments)
    answer = _object(finished)
    assert finished.returncode == 0, finished.stderr
    assert sum(answer["trials"].values()) == 4
    assert answer["winner"]["confirmed"] is True
    shown = json.loads(autotune("show", "--storage", "sqlite:///s.db", "--json").stdout)
    points = [json.dumps(trial["point"]) for trial in shown["trials"]]
    assert len(set(points)) == len(points) == 4
