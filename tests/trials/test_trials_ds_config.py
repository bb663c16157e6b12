"""The DeepSpeed dictionary of a point: batch sizes, precision, optimizer, buckets, stages and offload."""

from __future__ import annotations

from typing import Any

import pytest

from trials.ds_config import bucket_elements, deepspeed_config
from trials.wire import Point

MANY = 7_000_000_000


def config_of(trainable: int = 5_000_000, largest: int = 1_000_000, **values: Any) -> dict[str, Any]:
    settings = {
        key: values.pop(key)
        for key in ("processes", "nvme_path", "torch_adam", "gradient_clipping")
        if key in values
    }
    return deepspeed_config(
        Point(**values), trainable_parameters=trainable, largest_parameter=largest, **settings
    )


def test_batch_sizes_multiply_to_the_train_batch() -> None:
    config = config_of(micro_batch_size=3, gradient_accumulation_steps=5, processes=2)
    assert config["train_micro_batch_size_per_gpu"] == 3
    assert config["gradient_accumulation_steps"] == 5
    assert config["train_batch_size"] == 30


def test_each_precision_has_its_block_and_no_other() -> None:
    assert config_of()["bf16"] == {"enabled": True}
    assert config_of(precision="fp16")["fp16"]["enabled"] is True
    assert "fp16" not in config_of()
    assert "bf16" not in config_of(precision="fp16")
    assert not {"bf16", "fp16"} & config_of(precision="fp32").keys()


def test_fp16_starts_with_a_loss_scale_that_skips_no_step() -> None:
    # DeepSpeed's own 2^16 overflows a random model's first gradients; below 2^10 none did.
    assert config_of(precision="fp16")["fp16"]["initial_scale_power"] <= 10


@pytest.mark.parametrize(
    ("trainable", "asked", "bucket"),
    [
        (5_000_000, None, 5_000_000),
        (MANY, None, 500_000_000),
        (500_000_000, None, 500_000_000),
        (5_000_000, 123, 123),
        (5_000_000, 2_000_000_000, 2_000_000_000),
        (0, None, 1),
    ],
)
def test_the_bucket_is_the_points_own_or_no_more_than_what_is_trained(
    trainable: int, asked: int | None, bucket: int
) -> None:
    assert bucket_elements(Point(zero_bucket_elements=asked), trainable) == bucket


@pytest.mark.parametrize("stage", [1, 2])
def test_stages_one_and_two_size_both_of_their_buckets(stage: int) -> None:
    assert config_of(zero_stage=stage)["zero_optimization"] == {
        "stage": stage,
        "reduce_bucket_size": 5_000_000,
        "allgather_bucket_size": 5_000_000,
    }


def test_stage_three_sizes_reduce_and_prefetch_buckets() -> None:
    assert config_of(zero_stage=3)["zero_optimization"] == {
        "stage": 3,
        "reduce_bucket_size": 5_000_000,
        "stage3_prefetch_bucket_size": 5_000_000,
    }
    # DeepSpeed's own prefetch is 5e7 elements: a large bucket must not enlarge it.
    large = config_of(zero_stage=3, trainable=MANY)["zero_optimization"]
    assert (large["reduce_bucket_size"], large["stage3_prefetch_bucket_size"]) == (500_000_000, 50_000_000)


def test_stage_zero_has_no_zero_block() -> None:
    assert "zero_optimization" not in config_of()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_optimizer_offload_leaves_the_parameters_where_they_are(stage: int) -> None:
    zero = config_of(zero_stage=stage, offload="optimizer")["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "offload_param" not in zero


def test_parameter_offload_offloads_both() -> None:
    zero = config_of(zero_stage=3, offload="optimizer+parameters")["zero_optimization"]
    assert zero["offload_optimizer"]["device"] == zero["offload_param"]["device"] == "cpu"


def test_nvme_offload_goes_to_the_given_folder() -> None:
    optimizer = config_of(zero_stage=3, offload="nvme_optimizer", nvme_path="/nvme")["zero_optimization"]
    assert optimizer["offload_optimizer"] == {"device": "nvme", "pin_memory": True, "nvme_path": "/nvme"}
    assert "offload_param" not in optimizer
    both = config_of(zero_stage=3, offload="nvme_optimizer+parameters", nvme_path="/nvme")[
        "zero_optimization"
    ]
    assert both["offload_param"]["nvme_path"] == both["offload_optimizer"]["nvme_path"] == "/nvme"


def test_an_nvme_buffer_holds_the_largest_parameter() -> None:
    zero = config_of(
        zero_stage=3, offload="nvme_optimizer+parameters", nvme_path="/nvme", largest=1_050_000_000
    )["zero_optimization"]
    assert zero["offload_param"]["buffer_size"] >= 1_050_000_000


@pytest.mark.parametrize("offload", ["nvme_optimizer", "nvme_optimizer+parameters"])
@pytest.mark.parametrize("path", [None, ""])
def test_nvme_offload_without_a_path_is_refused(offload: str, path: str | None) -> None:
    with pytest.raises(ValueError, match="path"):
        config_of(zero_stage=3, offload=offload, nvme_path=path)


def test_adamw_is_deepspeeds_unless_torchs_is_asked_for() -> None:
    assert "torch_adam" not in config_of()["optimizer"]["params"]
    assert config_of(torch_adam=True)["optimizer"]["params"]["torch_adam"] is True
    # With offload DeepSpeed's CPU Adam runs: torch's there would be many times slower.
    assert (
        "torch_adam"
        not in config_of(torch_adam=True, zero_stage=2, offload="optimizer")["optimizer"]["params"]
    )


@pytest.mark.parametrize("optimizer", ["adamw8bit", "paged_adamw8bit"])
def test_an_optimizer_of_ones_own_is_not_in_the_file_but_allowed(optimizer: str) -> None:
    config = config_of(optimizer=optimizer, zero_stage=2)
    assert "optimizer" not in config
    assert config["zero_allow_untested_optimizer"] is True


def test_gradients_are_clipped_as_asked() -> None:
    assert config_of()["gradient_clipping"] == 1.0
    assert config_of(gradient_clipping=0.0)["gradient_clipping"] == 0.0


def test_the_same_point_gives_the_same_dictionary_and_no_shared_parts() -> None:
    first, second = (config_of(zero_stage=3, offload="optimizer+parameters") for _ in range(2))
    assert first == second
    first["zero_optimization"]["offload_param"]["device"] = "nvme"
    assert second["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert first["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
