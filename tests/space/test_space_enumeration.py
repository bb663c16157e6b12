"""From a space to its points: distinct, possible, and the others counted by reason."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.space import (
    Capabilities,
    Enumeration,
    Setting,
    Space,
    enumerate_points,
    load_space,
    neutral_point,
    parse_space,
    violation,
)
from autotune.space.fields import point_fields
from trials.wire import Point

GPU = Capabilities("cuda", bf16=True, fp16=True, liger=True, bitsandbytes=True)
CPU = Capabilities("cpu", bitsandbytes=True)
SETTING = Setting("any", 32, False, 1, 16, GPU)


def points_of(text: str, setting: Setting = SETTING) -> Enumeration:
    return enumerate_points(parse_space(text, name="mine", file="mine.yaml"), setting)


def test_a_space_is_the_product_of_its_values_less_what_is_impossible() -> None:
    """Against a plain walk over every combination, point by point."""
    space = load_space("full")
    names = [name for name in point_fields() if name != "gradient_accumulation_steps"]
    expected = set()
    for values in product(*(space.of_field(name) for name in names)):
        fields: dict[str, Any] = dict(zip(names, values, strict=True))
        for steps in range(1, 33):
            if abs(fields["micro_batch_size"] * steps - 32) <= 1:
                point = Point(**fields, gradient_accumulation_steps=steps)
                expected |= {point} if violation(point, SETTING) is None else set()
    # 3 x 11 = 33 and all divisors; 6 x 5 = 30 is the only other one within 10 %.
    within_one = {p for p in enumerate_points(space, SETTING).points if p.micro_batch_size != 6}
    assert within_one == expected


def test_the_quick_space_has_a_few_dozen_points_of_both_methods() -> None:
    found = enumerate_points(load_space("quick"), SETTING)
    # 4 micro batches x 3 shares x 2 stages x (full, LoRA)
    assert len(found.points) == 48
    assert {point.method for point in found.points} == {"full", "lora"}
    assert all(point.offload == "none" for point in found.points)


def test_any_has_thousands_of_points_in_a_blink() -> None:
    space = load_space("any")
    started = time.perf_counter()
    found = enumerate_points(space, SETTING)
    assert time.perf_counter() - started < 3
    # Engines, each with liger on and off. Full and 16-bit LoRA and NF4 alike: stage 0: 2 optimizers; 1 and 2:
    # 2 + 1 offloaded; 3: 2 + 2 offloaded. 12, times 2. Adapters: full, 3 ranks, 3 ranks in NF4: 7.
    # Micro batches within 10 % of 32: 1, 2, 3, 4, 6, 8, 16, 32. Shares: 5.
    assert len(found.points) == 24 * 7 * 8 * 5 == 6720


@pytest.mark.parametrize("name", ["any", "full", "lora", "qlora", "quick"])
@pytest.mark.parametrize("capabilities", [GPU, CPU, Capabilities("cuda")])
@pytest.mark.parametrize("global_batch", [8, None])
def test_points_are_distinct_possible_and_complete(
    name: str, capabilities: Capabilities, global_batch: int | None
) -> None:
    setting = replace(SETTING, capabilities=capabilities, global_batch=global_batch)
    if name == "qlora" and not capabilities.bitsandbytes:
        with pytest.raises(UsageError, match="bitsandbytes"):
            enumerate_points(load_space(name), setting)
        return
    space = load_space(name)
    if name == "any" and global_batch is None:
        # The same fields with fewer values: listing 60,000 points would show nothing more.
        space = Space.of(
            "any", dict(space.values) | {"micro_batch_size": (1, 12), "checkpoint_fraction": (0.5,)}
        )
    found = enumerate_points(space, setting)
    assert len(set(found.points)) == len(found.points)
    assert all(violation(point, setting) is None for point in found.points)
    assert all(neutral_point(point) == point for point in found.points)
    listed = 1
    for field in point_fields():
        listed *= len(space.of_field(field))
    accumulations = 6 if global_batch is None else 1
    assert len(found.points) + sum(found.lost.values()) == listed * accumulations


def test_a_field_that_does_not_matter_makes_no_second_point() -> None:
    found = points_of("zero_stage: [0, 1]\nzero_bucket_elements: [default, 1000000, 2000000]")
    assert [(point.zero_stage, point.zero_bucket_elements) for point in found.points] == [
        (0, None),
        (1, None),
        (1, 1_000_000),
        (1, 2_000_000),
    ]


def test_shares_that_recompute_equally_many_layers_are_one_point() -> None:
    text = "checkpoint_fraction: [0, 0.1, 0.25, 0.5, 0.6, 1]"
    assert [p.checkpoint_fraction for p in points_of(text, replace(SETTING, num_layers=4)).points] == [
        0.0,  # 0 and round(0.4) = 0 layers
        0.25,  # 1 layer
        0.5,  # 2 layers, and round(2.4) = 2
        1.0,
    ]
    assert len(points_of(text).points) == 6
    assert [p.checkpoint_fraction for p in points_of(text, replace(SETTING, num_layers=1)).points] == [
        0.0,
        1.0,
    ]


def test_every_lost_combination_is_counted_under_one_reason() -> None:
    found = points_of(
        "zero_stage: [0, 3]\noffload: [none, optimizer, optimizer+parameters]\nmicro_batch_size: [1, 24]"
    )
    assert len(found.points) == 4  # micro batch 1; stage 0 alone, stage 3 with all three
    # 2 micro batches: optimizer and optimizer+parameters at stage 0; micro batch 24 for the 4 engines.
    assert sorted(found.lost.values()) == [2, 2, 4]
    assert sum(found.lost.values()) + len(found.points) == 2 * 3 * 2


def test_offloaded_parameters_without_stage_3_end_in_an_error_that_says_so() -> None:
    for method in ("auto", "full", "lora", "any"):
        with pytest.raises(UsageError) as caught:
            points_of("offload: optimizer+parameters\nzero_stage: 2", replace(SETTING, method=method))
        assert "offload of parameters needs ZeRO stage 3: set zero_stage: [3]" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "changes", "what"),
    [
        ("lora_rank: [8]", {}, "below --min-rank 16"),
        ("lora_rank: [0, 16]\nzero_stage: [0, 1]", {"method": "qlora"}, "not the method asked for (QLoRA)"),
        ("precision: fp16", {"capabilities": CPU}, "refuses fp16 on the CPU"),
        ("micro_batch_size: [7, 9]", {"exact_global_batch": True}, "is not exactly the global batch of 32"),
        ("micro_batch_size: 64", {}, "more than 10 % off the global batch of 32"),
        (
            "gradient_accumulation_steps: [3, 5]",
            {},
            "gradient_accumulation_steps misses the global batch of 32",
        ),
    ],
)
def test_a_wholly_impossible_space_says_what_comes_nearest(
    text: str, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(UsageError, match="no point of the space 'mine' is possible") as caught:
        points_of(text, replace(SETTING, **changes))
    assert what in caught.value.hint


def test_a_listed_accumulation_is_kept_where_it_is_what_the_global_batch_asks_for() -> None:
    found = points_of("micro_batch_size: [1, 4, 8]\ngradient_accumulation_steps: [4, 8]")
    assert [(p.micro_batch_size, p.gradient_accumulation_steps) for p in found.points] == [(4, 8), (8, 4)]


def test_without_a_global_batch_accumulation_is_searched() -> None:
    free = replace(SETTING, global_batch=None)
    found = points_of("micro_batch_size: [3]", free)
    assert [point.gradient_accumulation_steps for point in found.points] == [1, 2, 4, 8, 16, 32]
    found = points_of("gradient_accumulation_steps: {from: 1, to: 3, step: 1}", free)
    assert [point.gradient_accumulation_steps for point in found.points] == [1, 2, 3]


def test_fp16_takes_the_place_of_bf16_where_the_gpu_has_none() -> None:
    old_gpu = replace(SETTING, capabilities=Capabilities("cuda", bf16=False, fp16=True))
    found = points_of("precision: [bf16, fp32]", old_gpu)
    assert [point.precision for point in found.points] == ["fp16", "fp32"]
    assert found.notes and not found.lost
    asked = points_of("precision: [bf16, fp16]", old_gpu)
    assert [point.precision for point in asked.points] == ["fp16"]
    assert not asked.notes and sum(asked.lost.values()) == 1
    assert [point.precision for point in points_of("precision: bf16").points] == ["bf16"]


def test_a_space_too_large_to_list_is_refused_at_once() -> None:
    for text in (
        "micro_batch_size: {from: 1, to: 1000, step: 1}\nlora_rank: {from: 16, to: 1000, step: 1}",
        "micro_batch_size: {from: 1, to: 999, step: 1}\n"
        "gradient_accumulation_steps: {from: 1, to: 999, step: 1}",
        "lora_rank: {from: 16, to: 1000, step: 1}\nzero_bucket_elements: {from: 1, to: 1000, step: 1}",
    ):
        started = time.perf_counter()
        with pytest.raises(UsageError, match="over 200,000 points"):
            points_of(text, replace(SETTING, global_batch=None))
        assert time.perf_counter() - started < 3
