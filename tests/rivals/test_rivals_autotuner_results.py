"""The results folder of DeepSpeed's autotuner, as deepspeed 0.19.8 leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.rivals.autotuner_results import best_experiment, read_experiments

CUDA_OOM = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total "
    "capacity of 139.80 GiB of which 117.17 GiB is free. 22.10 GiB allowed;\n"
)


def experiment(
    results: Path,
    number: int,
    stage: int,
    micro_batch: int,
    accumulation: int,
    *,
    throughput: float | None = None,
    stderr: str = "",
) -> Path:
    """One folder of an experiment; its sizes are what the tuner writes into `exp.json`."""
    name = f"z{stage}_gas{accumulation}_tmbspg{micro_batch}"
    folder = results / name
    folder.mkdir(parents=True)
    config = {
        "zero_optimization": {"stage": stage},
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": micro_batch * accumulation,
    }
    write(folder / "exp.json", {"name": name, "exp_id": number, "ds_config": config})
    write(folder / "ds_config.json", config)
    (folder / "stderr.log").write_text(stderr)
    if throughput is not None:
        write(folder / "metrics.json", {"latency": 1e6, "throughput": throughput, "rank": 0})
    return folder


def profile(results: Path) -> None:
    """The model profile, which has no accumulation of its own and no throughput."""
    folder = results / "profile_model_info"
    folder.mkdir(parents=True)
    config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
    write(folder / "exp.json", {"name": "profile_model_info", "exp_id": 0, "ds_config": config})
    write(folder / "model_info.json", {"num_params": 5048576, "activation_mem_per_gpu": 1000})
    (folder / "stderr.log").write_text("")


def write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values))


def test_every_way_an_experiment_can_end_is_told_apart_and_in_the_order_they_ran(tmp_path: Path) -> None:
    profile(tmp_path)
    experiment(tmp_path, 10, 1, 4, 8)
    experiment(tmp_path, 9, 0, 9, 1, stderr=CUDA_OOM)
    experiment(tmp_path, 2, 0, 1, 1, throughput=11.5)
    experiment(tmp_path, 3, 0, 2, 1, stderr="Traceback\nValueError: no such thing\n")
    read = read_experiments(tmp_path)
    assert [(one.micro_batch_size, one.status) for one in read] == [
        (1, "ok"),
        (1, "ok"),
        (2, "failed"),
        (9, "oom"),
        (4, "unfinished"),
    ]
    assert read[2].reason == "ValueError: no such thing"
    assert [one.samples_per_second for one in read] == [None, 11.5, None, None, None]


def test_deepspeeds_default_buckets_are_part_of_what_ran_above_stage_0(tmp_path: Path) -> None:
    experiment(tmp_path, 1, 0, 4, 8, throughput=1.0)
    experiment(tmp_path, 2, 2, 4, 8, throughput=1.0)
    # DeepSpeed's documented default: reduce_bucket_size 5e8.
    assert [one.zero_bucket_elements for one in read_experiments(tmp_path)] == [None, 500_000_000]


def test_the_winner_is_the_tuners_own_choice_where_it_got_that_far(tmp_path: Path) -> None:
    results = tmp_path / "results"
    experiment(results, 1, 0, 4, 8, throughput=20.0)
    chosen = experiment(results, 2, 1, 6, 5, throughput=19.0)
    optimal = results / "ds_config_optimal.json"
    optimal.write_text((chosen / "ds_config.json").read_text())
    best = best_experiment(read_experiments(results), optimal)
    assert best is not None
    assert (best.zero_stage, best.micro_batch_size, best.sequences_per_step) == (1, 6, 30)


def test_a_tuner_that_was_cut_is_credited_with_the_fastest_it_had_seen(tmp_path: Path) -> None:
    profile(tmp_path)
    experiment(tmp_path, 1, 0, 1, 1, throughput=9.0)
    experiment(tmp_path, 2, 0, 5, 1, throughput=22.0)
    experiment(tmp_path, 3, 0, 6, 1, stderr=CUDA_OOM)
    best = best_experiment(read_experiments(tmp_path), tmp_path / "ds_config_optimal.json")
    assert best is not None
    assert best.micro_batch_size == 5


def test_a_tuner_that_never_measured_anything_has_no_winner(tmp_path: Path) -> None:
    assert read_experiments(tmp_path / "nothing") == []
    profile(tmp_path)
    experiment(tmp_path, 1, 0, 1, 1, stderr=CUDA_OOM)
    assert best_experiment(read_experiments(tmp_path), tmp_path / "ds_config_optimal.json") is None
