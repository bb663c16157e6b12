"""Faults that a stranger found, each as it was found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from cli_process import Autotune


@pytest.mark.parametrize("url", ["u:s3cret@h", "://u:s3cret@h"])
def test_a_storage_url_that_cannot_be_read_is_not_shown(tmp_path: Path, url: str) -> None:
    ended = Autotune(tmp_path)("list", "--storage", url)
    assert ended.returncode == 2
    assert "s3cret" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_folder_on_nvme_that_does_not_exist_is_refused_at_once(tmp_path: Path, command: str) -> None:
    words = [command, "--model", "tiny-llama", "--gpu-budget", "1GB", "--nvme-path", "nope"]
    ended = Autotune(tmp_path)(*words, *(["--device", "cpu"] if command == "run" else []))
    assert ended.returncode == 2
    assert "no folder" in ended.stderr


def test_adapters_targets_without_adapters_are_refused(tmp_path: Path) -> None:
    ended = Autotune(tmp_path)("estimate", "--model", "tiny-llama", "--lora-targets", "q_proj")
    assert ended.returncode == 2
    assert "needs LoRA" in ended.stderr


@pytest.mark.slow
def test_an_absurd_micro_batch_needs_an_absurd_memory(tmp_path: Path) -> None:
    words = ["estimate", "--model", "tiny-llama", "--seq-len", "64", "--json"]
    ended = Autotune(tmp_path)(*words, "--micro-batch-size", "100000000")
    assert ended.returncode == 0, ended.stderr
    # The logits alone, in fp32, once.
    vocabulary = 4096
    assert json.loads(ended.stdout)["required_device_bytes"] > 4 * 64 * 100_000_000 * vocabulary / 4


@pytest.mark.slow
def test_a_killed_confirmation_does_not_cost_the_fastest_configuration_its_win(tmp_path: Path) -> None:
    space = tmp_path / "two.yaml"
    space.write_text("micro_batch_size: [1, 4]\nlora_rank: [16]\nzero_stage: [0]\ncheckpoint_fraction: [0]\n")
    words = ["run", "--model", "tiny-llama", "--device", "cpu", "--gpu-budget", "1GB", "--seq-len", "64"]
    words += ["--global-batch", "4", "--method", "lora", "--space", str(space), "--trials", "2", "--verbose"]
    words += ["--storage", f"sqlite:///{tmp_path}/s.db", "--export-dir", str(tmp_path / "out"), "--json"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "PYTHONPATH": root}
    command = [sys.executable, "-m", "autotune", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        told = []
        for line in process.stderr:
            told.append(line)
            # What it tells first comes from a process of its own: the search's live engine has ended then.
            if len(told) > 1 and "confirming the best" in told[-2]:
                _kill_trial(process.pid)
                break
        told += list(process.stderr)
        answer = json.loads(process.stdout.read())
    assert process.returncode == 0, told
    assert any("once more" in line for line in told)
    assert answer["winner"]["confirmed"]
    assert answer["winner"]["point"]["micro_batch_size"] == 4


def _kill_trial(controller: int) -> None:
    """Kill the process forked for the trial that is about to run."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        servers = [
            p for p in psutil.Process(controller).children() if "trials.server" in " ".join(p.cmdline())
        ]
        trials = [child for server in servers for child in server.children()]
        if trials:
            os.kill(trials[0].pid, signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError("no trial was started")
