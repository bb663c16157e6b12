"""What makes a point impossible, and that the reason says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.space import Capabilities, Setting, trainers, violation
from autotune.space.batch import accumulation_steps
from autotune.space.conditions import ENGINE_RULES, SHAPE_FIELDS, SHAPE_RULES
from autotune.space.trainers import LIMITS
from trials.wire import Point

GPU = Capabilities(
    "cuda", bf16=True, fp16=True, flash_attention_2=True, liger=True, bitsandbytes=True, nvme=True
)
CPU = Capabilities(
    "cpu", bf16=True, fp16=True, flash_attention_2=True, liger=True, bitsandbytes=True, nvme=True
)
ANYTHING = Setting("any", None, False, 1, 16, GPU)


def reason(setting: Setting = ANYTHING, **fields: Any) -> str:
    return violation(Point(**fields), setting) or ""


def on(capabilities: Capabilities, **changes: Any) -> Setting:
    return replace(ANYTHING, capabilities=replace(capabilities, **changes))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"zero_stage": 1, "offload": "optimizer"},
        {"zero_stage": 3, "offload": "optimizer"},
        {"zero_stage": 3, "offload": "optimizer+parameters"},
        {"zero_stage": 3, "offload": "nvme_optimizer"},
        {"zero_stage": 3, "offload": "nvme_optimizer+parameters"},
        {"lora_rank": 16, "quantization": "nf4", "zero_stage": 3, "offload": "optimizer+parameters"},
        {"lora_rank": 16, "quantization": "int8", "zero_stage": 2},
        {"optimizer": "adamw8bit", "zero_stage": 3},
        {"optimizer": "paged_adamw8bit"},
        {"precision": "fp16", "attention": "flash_attention_2"},
        {"precision": "fp32", "attention": "eager", "liger_kernel": True},
        {"micro_batch_size": 7, "gradient_accumulation_steps": 3, "checkpoint_fraction": 0.3},
    ],
)
def test_what_works_on_a_gpu_is_possible(fields: dict[str, Any]) -> None:
    assert reason(**fields) == ""


@pytest.mark.parametrize(
    ("fields", "what", "remedy"),
    [
        ({"offload": "optimizer"}, "needs ZeRO stage 1, 2 or 3", "set zero_stage: [1, 2, 3]"),
        ({"offload": "optimizer+parameters"}, "parameters needs ZeRO stage 3", "set zero_stage: [3]"),
        ({"offload": "optimizer+parameters", "zero_stage": 2}, "parameters needs ZeRO stage 3", "[3]"),
        ({"offload": "nvme_optimizer", "zero_stage": 2}, "NVMe needs ZeRO stage 3", "[3]"),
        ({"quantization": "nf4"}, "cannot be trained in full", "lora_rank"),
        ({"quantization": "int8", "lora_rank": 16, "zero_stage": 3}, "out of ZeRO stage 3's reach", "nf4"),
        ({"optimizer": "adamw8bit", "offload": "optimizer", "zero_stage": 2}, "state on the GPU", "[adamw]"),
        ({"optimizer": "paged_adamw8bit", "offload": "optimizer", "zero_stage": 2}, "state on the GPU", ""),
        ({"attention": "flash_attention_2", "precision": "fp32"}, "16 bits", "bf16"),
        ({"lora_rank": 8}, "below --min-rank 16", ""),
        ({"lora_rank": 8, "quantization": "nf4"}, "below --min-rank 16", ""),
    ],
)
def test_a_combination_that_cannot_run_says_why(fields: dict[str, Any], what: str, remedy: str) -> None:
    assert what in reason(**fields)
    assert remedy in reason(**fields)


@pytest.mark.parametrize(
    ("lacking", "fields", "what"),
    [
        ({"nvme": False}, {"offload": "nvme_optimizer", "zero_stage": 3}, "--nvme-path"),
        ({"bitsandbytes": False}, {"quantization": "nf4", "lora_rank": 16}, "bitsandbytes"),
        ({"bitsandbytes": False}, {"optimizer": "adamw8bit"}, "bitsandbytes"),
        ({"bf16": False}, {}, "set precision: [fp16]"),
        ({"fp16": False}, {"precision": "fp16"}, "set precision: [bf16]"),
        ({"liger": False}, {"liger_kernel": True}, "liger-kernel is not installed"),
        ({"flash_attention_2": False}, {"attention": "flash_attention_2"}, "not installed"),
        ({"refused_attentions": ("sdpa",)}, {}, "the model refuses sdpa"),
    ],
)
def test_what_the_machine_or_the_model_lacks_is_named(
    lacking: dict[str, Any], fields: dict[str, Any], what: str
) -> None:
    assert reason(**fields) == "" or lacking.get("refused_attentions")
    assert what in reason(on(GPU, **lacking), **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "fp16"},
        {"liger_kernel": True},
        {"attention": "flash_attention_2"},
        {"optimizer": "paged_adamw8bit"},
    ],
)
def test_what_needs_a_gpu_is_impossible_on_the_cpu(fields: dict[str, Any]) -> None:
    assert reason(**fields) == ""
    assert reason(on(CPU), **fields) != ""


def test_the_cpu_runs_every_stage_and_offload_and_quantization() -> None:
    for fields in (
        {"zero_stage": 3, "offload": "optimizer+parameters"},
        {"zero_stage": 1, "offload": "optimizer"},
        {"optimizer": "adamw8bit", "precision": "fp32"},
        {"lora_rank": 16, "quantization": "int8"},
        {"attention": "eager"},
    ):
        assert reason(on(CPU), **fields) == ""


@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        ("auto", {"lora"}),
        ("lora", {"lora"}),
        ("full", {"full"}),
        ("qlora", {"qlora"}),
        ("any", {"full", "lora", "qlora"}),
    ],
)
def test_only_points_of_the_method_remain(method: Any, allowed: set[str]) -> None:
    points = [Point(), Point(lora_rank=16), Point(lora_rank=16, quantization="nf4")]
    setting = replace(ANYTHING, method=method)
    assert {point.method for point in points if violation(point, setting) is None} == allowed


def test_the_rank_limit_leaves_full_fine_tuning_alone() -> None:
    setting = replace(ANYTHING, min_rank=64)
    assert violation(Point(), setting) is None
    assert violation(Point(lora_rank=64), setting) is None
    assert "--min-rank 64" in (violation(Point(lora_rank=32), setting) or "")


@pytest.mark.parametrize(
    ("global_batch", "micro_batch", "gpus", "steps"),
    [
        (32, 1, 1, 32),
        (32, 3, 1, 11),  # 33 rather than 30
        (32, 6, 1, 5),  # 30 rather than 36
        (32, 64, 1, 1),
        (32, 4, 4, 2),
        (11, 2, 1, 5),  # 10 and 12 are equally near
        (1, 1, 8, 1),
    ],
)
def test_accumulation_is_the_integer_nearest_to_the_global_batch(
    global_batch: int, micro_batch: int, gpus: int, steps: int
) -> None:
    assert accumulation_steps(global_batch, micro_batch, gpus) == steps


@pytest.mark.parametrize(
    ("micro_batch", "steps", "exact", "possible"),
    [
        (4, 8, True, True),
        (3, 11, False, True),  # 33: 3 % off
        (3, 11, True, False),
        (12, 3, False, False),  # 36: 12.5 % off
        (64, 1, False, False),
        (4, 7, False, False),  # 28 is not the nearest
        (1, 31, False, False),
    ],
)
def test_a_point_must_meet_the_global_batch(
    micro_batch: int, steps: int, exact: bool, possible: bool
) -> None:
    setting = replace(ANYTHING, global_batch=32, exact_global_batch=exact)
    point = Point(micro_batch_size=micro_batch, gradient_accumulation_steps=steps)
    assert (violation(point, setting) is None) == possible


def test_ten_percent_off_is_still_a_point_and_more_is_not() -> None:
    for global_batch, possible in ((10, True), (9, False)):  # 11 sequences: 10 % and 22 % off
        setting = replace(ANYTHING, global_batch=global_batch)
        point = Point(micro_batch_size=11, gradient_accumulation_steps=1)
        assert (violation(point, setting) is None) == possible


def test_gpus_share_the_global_batch() -> None:
    setting = replace(ANYTHING, global_batch=32, gpus=4)
    assert violation(Point(micro_batch_size=4, gradient_accumulation_steps=2), setting) is None
    assert violation(Point(micro_batch_size=4, gradient_accumulation_steps=8), setting) is not None


def test_only_trainers_of_our_own_checkpoint_a_share_of_the_layers() -> None:
    able = {None, "script", "deepspeed"}
    for trainer in (None, *trainers()):
        setting = replace(ANYTHING, trainer=trainer)
        half = Point(checkpoint_fraction=0.5, lora_rank=16)
        assert (violation(half, setting) is None) == (trainer in able)
        for all_or_none in (0.0, 1.0):
            assert violation(Point(checkpoint_fraction=all_or_none, lora_rank=16), setting) is None


def test_peft_trains_adapters_and_nothing_else() -> None:
    setting = replace(ANYTHING, trainer="peft")
    assert violation(Point(lora_rank=16), setting) is None
    assert "set lora_rank above 0" in (violation(Point(), setting) or "")


@pytest.mark.parametrize(
    ("trainer", "fields"),
    [
        # The base would be loaded in its checkpoint's own precision.
        ("llamafactory", {"precision": "fp32", "lora_rank": 16}),
        # SFTTrainer casts these adapters to bf16 whatever is asked for.
        ("trl", {"precision": "fp32", "lora_rank": 16, "quantization": "nf4"}),
        # 8-bit loading without bf16 means fp16 there.
        ("axolotl", {"precision": "fp32", "lora_rank": 16, "quantization": "int8"}),
        # Trainer.create_optimizer overrides the embeddings' state to 32 bits.
        ("transformers", {"precision": "fp32", "optimizer": "adamw8bit"}),
    ],
)
def test_a_trainer_is_not_offered_what_it_would_do_otherwise(trainer: str, fields: dict[str, Any]) -> None:
    assert reason(replace(ANYTHING, trainer=trainer), **fields).startswith(f"{trainer} ")
    in_bf16 = {**fields, "precision": "bf16"}
    assert reason(replace(ANYTHING, trainer=trainer), **in_bf16) == ""
    assert reason(replace(ANYTHING, trainer="script"), **fields) == ""


def test_the_trainers_limits_name_every_field_of_a_point() -> None:
    assert set(LIMITS) == set(Point.model_fields)


def test_the_trainers_are_those_that_are_exported_for() -> None:
    expected = {
        "deepspeed",
        "transformers",
        "accelerate",
        "trl",
        "peft",
        "llamafactory",
        "axolotl",
        "swift",
        "script",
    }
    assert set(trainers()) == expected
    with pytest.raises(UsageError, match="did you mean axolotl"):
        replace(ANYTHING, trainer="axolot")


def test_rules_read_only_the_fields_of_their_kind() -> None:
    """Spaces are enumerated engine by engine and shape by shape, which is right only because of this."""

    class Watched:
        def __init__(self, point: Point, seen: set[str]) -> None:
            self.point, self.seen = point, seen

        def __getattr__(self, name: str) -> Any:
            self.seen.update(("lora_rank", "quantization") if name == "method" else (name,))
            return getattr(self.point, name)

    strict = Setting("lora", 32, True, 2, 16, Capabilities("cpu", bf16=False), trainer="trl")
    for setting in (ANYTHING, strict):
        for point in (
            Point(),
            Point(lora_rank=16, quantization="nf4", offload="nvme_optimizer", zero_stage=3),
        ):
            for rules, shape in ((ENGINE_RULES, False), (SHAPE_RULES, True)):
                seen: set[str] = set()
                for rule in rules:
                    rule(Watched(point, seen), setting)  # type: ignore[arg-type]
                assert all((name in SHAPE_FIELDS) == shape for name in seen)
