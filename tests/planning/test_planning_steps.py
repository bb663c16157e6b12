"""Which single changes are proposed for a configuration that does not fit."""

from __future__ import annotations

import pytest

from autotune.planning.steps import changes, setting_of_any_machine, single_steps
from autotune.space import violation
from trials.wire import Point

LORA = Point(micro_batch_size=8, gradient_accumulation_steps=4, lora_rank=32)
FULL = Point(micro_batch_size=4, precision="fp32", attention="eager")


@pytest.mark.parametrize("point", [LORA, FULL, Point(zero_stage=3, offload="optimizer+parameters"), Point()])
def test_every_step_is_possible_differs_and_is_there_once(point: Point) -> None:
    steps = single_steps(point)

    assert all(violation(step.point, setting_of_any_machine(1)) is None for step in steps)
    assert point not in [step.point for step in steps]
    assert len({step.point for step in steps}) == len(steps)


def test_smaller_micro_batches_keep_the_tokens_of_a_step_and_come_largest_first() -> None:
    found = [step.point for step in single_steps(LORA) if step.kind == "micro batch"]

    assert [point.micro_batch_size for point in found] == [6, 4, 3, 2, 1]
    for point in found:
        assert abs(point.micro_batch_size * point.gradient_accumulation_steps - 32) <= 2


def test_what_changes_what_is_learned_says_so() -> None:
    lora = {step.kind for step in single_steps(LORA) if step.quality}
    full = {step.kind for step in single_steps(FULL) if step.quality}

    assert lora == {"rank", "quantization", "optimizer"}
    assert full == {"method", "precision", "optimizer"}


def test_nothing_is_left_to_propose_where_everything_is_done() -> None:
    smallest = Point(
        checkpoint_fraction=1.0,
        zero_stage=3,
        offload="optimizer+parameters",
        lora_rank=8,
        quantization="nf4",
        liger_kernel=True,
    )
    assert single_steps(smallest) == []


def test_changes_are_the_fields_that_differ() -> None:
    assert changes(LORA, LORA) == {}
    assert changes(LORA, LORA.model_copy(update={"zero_stage": 2, "lora_rank": 8})) == {
        "zero_stage": 2,
        "lora_rank": 8,
    }
