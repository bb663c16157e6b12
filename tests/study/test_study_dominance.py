"""What a memory failure rules out, and what it must not rule out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from autotune.study import Record, is_dominated
from trials.wire import Outcome, Phase, Point, TrialResult

FAILED = Point(
    micro_batch_size=4,
    gradient_accumulation_steps=4,
    checkpoint_fraction=0.5,
    zero_stage=2,
    lora_rank=32,
    zero_bucket_elements=1000,
)


def failure(
    outcome: Outcome = Outcome.OOM, phase: Phase = Phase.BACKWARD, **changes: Any
) -> tuple[Record, ...]:
    result = TrialResult(trial_id="0", outcome=outcome, phase=phase)
    now = datetime.now(UTC)
    return (Record(0, FAILED.model_copy(update=changes), result, None, now, now),)


def like_failed(**changes: Any) -> Point:
    return FAILED.model_copy(update=changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"micro_batch_size": 5},
        {"checkpoint_fraction": 0.25},
        {"lora_rank": 64},
        {"zero_bucket_elements": 2000},
        {"gradient_accumulation_steps": 2},
        {"gradient_accumulation_steps": 100},
        {"micro_batch_size": 8, "checkpoint_fraction": 0.0, "lora_rank": 128},
    ],
)
def test_a_point_that_needs_as_much_or_more_is_excluded(changes: dict[str, Any]) -> None:
    for outcome in (Outcome.OOM, Outcome.HOST_OOM):
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.FIRST_STEP, Phase.LATER_STEP, Phase.LOAD):
            assert is_dominated(like_failed(**changes), failure(outcome, phase))


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_size": 3},
        {"checkpoint_fraction": 0.75},
        {"lora_rank": 16},
        {"lora_rank": 0},
        {"zero_bucket_elements": 999},
        {"zero_bucket_elements": None},
        {"gradient_accumulation_steps": 1},
        {"micro_batch_size": 16, "gradient_accumulation_steps": 1},
        {"precision": "fp32"},
        {"zero_stage": 1},
        {"offload": "optimizer"},
        {"quantization": "nf4"},
        {"optimizer": "adamw8bit"},
        {"attention": "eager"},
        {"liger_kernel": True},
    ],
)
def test_a_point_that_may_need_less_is_not_excluded(changes: dict[str, Any]) -> None:
    assert not is_dominated(like_failed(**changes), failure())


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.START, Phase.SAVING])
def test_a_failure_without_a_batch_excludes_every_batch(phase: Phase) -> None:
    smallest = {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "checkpoint_fraction": 1.0}
    assert is_dominated(like_failed(**smallest), failure(phase=phase))
    assert not is_dominated(like_failed(**smallest), failure(phase=Phase.FORWARD))
    assert not is_dominated(like_failed(**smallest, lora_rank=16), failure(phase=phase))


def test_an_evaluation_pass_recomputes_nothing_but_has_a_batch() -> None:
    assert is_dominated(like_failed(checkpoint_fraction=1.0), failure(phase=Phase.EVALUATION))
    assert not is_dominated(like_failed(micro_batch_size=1), failure(phase=Phase.EVALUATION))


def test_without_accumulated_gradients_a_failure_excludes_points_with_them() -> None:
    assert is_dominated(like_failed(), failure(gradient_accumulation_steps=1))


def test_full_fine_tuning_does_not_exclude_lora() -> None:
    assert not is_dominated(like_failed(lora_rank=64), failure(lora_rank=0))
    assert is_dominated(like_failed(lora_rank=0), failure(lora_rank=0))


@pytest.mark.parametrize(
    "outcome",
    [Outcome.OK, Outcome.STOPPED, Outcome.TIMEOUT, Outcome.CRASH, Outcome.NAN, Outcome.INVALID],
)
def test_other_outcomes_exclude_nothing(outcome: Outcome) -> None:
    assert not is_dominated(FAILED, failure(outcome))


def test_a_trial_that_still_runs_excludes_nothing() -> None:
    now = datetime.now(UTC)
    assert not is_dominated(FAILED, [Record(0, FAILED, None, None, now, None)])
    assert not is_dominated(FAILED, [])
