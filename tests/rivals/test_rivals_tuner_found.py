"""What DeepSpeed's autotuner found, from its folder and how it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.running import OutsideShare, TrialRunner
from autotune.running.machine import inspect_machine
from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.contender import Job
from benchmarks.rivals.deepspeed_autotuner import RESULTS, found_by_tuner, tuner_config
from benchmarks.rivals.processes import Ended


@pytest.fixture
def job(tmp_path: Path) -> Job:
    machine = inspect_machine("cpu")
    return Job(
        case=Case(model="qwen2.5-1.5b", method="lora"),
        setting=Setting(device="cpu"),
        machine=machine,
        outside=OutsideShare(machine, tmp_path),
        runner=TrialRunner("cpu", model_type=None, log_dir=tmp_path),
        runner_start_seconds=0.0,
        folder=tmp_path,
        limit_seconds=120.0,
    )


def ended(folder: Path, *, cut: bool, returncode: int = 0, stderr: str = "", stdout: str = "") -> Ended:
    (folder / "stdout").write_text(stdout)
    (folder / "stderr").write_text(stderr)
    return Ended(cut, returncode, 120.0, folder / "stdout", folder / "stderr")


def experiment(
    folder: Path, number: int, config: dict[str, Any], throughput: float | None, stderr: str
) -> None:
    path = folder / RESULTS / f"experiment{number}"
    path.mkdir(parents=True)
    exp = {"name": f"experiment{number}", "exp_id": number, "ds_config": config}
    (path / "exp.json").write_text(json.dumps(exp))
    (path / "stderr.log").write_text(stderr)
    if throughput is not None:
        (path / "metrics.json").write_text(json.dumps({"throughput": throughput}))


def sizes(stage: int, micro_batch: int) -> dict[str, Any]:
    return {
        "zero_optimization": {"stage": stage},
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": 1,
    }


def test_its_choice_is_asked_for_at_the_global_batch_and_its_own_figure_is_said_to_be_of_another(
    job: Job,
) -> None:
    experiment(job.folder, 1, sizes(0, 1), 5.0, "")
    experiment(job.folder, 2, sizes(1, 6), 20.0, "")
    experiment(job.folder, 3, sizes(1, 7), None, "torch.OutOfMemoryError: CUDA out of memory.")
    found = found_by_tuner(job, ended(job.folder, cut=True))
    assert (found.status, found.tried, found.ooms) == ("cut", 3, 1)
    assert found.own_tokens_per_second == 20.0 * 1024
    assert found.note == "its own figure is at 6 sequences a step"
    point = found.point
    assert point is not None
    # 5 x 6 = 30 sequences are the nearest to 32.
    assert (point.micro_batch_size, point.gradient_accumulation_steps, point.lora_rank) == (6, 5, 16)
    assert (point.zero_stage, point.zero_bucket_elements) == (1, 500_000_000)


def test_a_tuner_that_tries_nothing_has_what_it_reckons_with_in_the_row(job: Job) -> None:
    path = job.folder / RESULTS / "profile_model_info"
    path.mkdir(parents=True)
    exp = {"name": "profile_model_info", "exp_id": 0, "ds_config": sizes(3, 1)}
    (path / "exp.json").write_text(json.dumps(exp))
    (path / "stderr.log").write_text("")
    (path / "model_info.json").write_text(json.dumps({"num_params": 6240512}))
    # As deepspeed 0.19.8 wrote it.
    stdout = (
        "[2026-12-01 02:40:54,584] [INFO] [autotuner.py:516:tune] The model has 6240512 parameters and "
        "requires at least 117.02 MB memory per GPU with DeepSpeed Zero stage ZeroStageEnum.weights "
        "optimization. Memory per GPU in system is 57.22 M. No tuning is performed.\n"
    )
    found = found_by_tuner(job, ended(job.folder, cut=False, stdout=stdout, stderr="100%| 1/1 [00:17<00:00]"))
    assert (found.status, found.tried, found.point) == ("failed", 0, None)
    assert found.note == (
        "it began no experiment after profiling the model: for 6,240,512 parameters, trained or not, it "
        "reckons with 117.02 MB of 57.22 MB"
    )


def test_a_tuner_that_gives_up_has_its_reason_in_the_row_without_a_path_of_this_machine(job: Job) -> None:
    words = f"RuntimeError: an error in {job.folder}/ds.json"
    experiment(
        job.folder, 1, {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}, None, words
    )
    found = found_by_tuner(job, ended(job.folder, cut=False))
    assert (found.status, found.point) == ("failed", None)
    assert found.note == "experiment1: failed, RuntimeError: an error in FOLDER/ds.json"


def test_a_launcher_that_does_not_start_is_a_failure_with_its_last_words(job: Job) -> None:
    found = found_by_tuner(
        job, ended(job.folder, cut=False, returncode=1, stderr="No module named tabulate\n")
    )
    assert found.status == "failed"
    assert "No module named tabulate" in found.note


def test_the_tuner_chooses_sizes_and_stages_itself_within_the_global_batch(job: Job) -> None:
    config = tuner_config(job)
    assert not {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"} & set(
        config
    )
    assert config["zero_optimization"] == {"stage": "all"}
    assert config["autotuning"]["max_train_batch_size"] == 32
    assert config["bf16"] == {"enabled": True}
