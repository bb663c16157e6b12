"""Trials of two processes over gloo: one result for both, and one reason when one of them fails."""

from __future__ import annotations

from typing import Any

import pytest
from trial_runs import Trials

from trials.wire import Outcome, Phase, Point

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "values",
    [
        {"zero_stage": 1, "gradient_accumulation_steps": 2},
        {"zero_stage": 2},
        {"zero_stage": 3},
        {"lora_rank": 8, "zero_stage": 2},
        {"lora_rank": 8, "zero_stage": 3, "checkpoint_fraction": 0.5},
    ],
    ids=str,
)
def test_two_processes_give_one_result(trials: Trials, values: dict[str, Any]) -> None:
    point = Point(**values)
    result = trials.run(point, processes=2)
    assert result.outcome is Outcome.OK, result.message
    assert result.ds_config is not None
    assert result.ds_config["train_batch_size"] == 2 * point.gradient_accumulation_steps
    # Tokens of both processes count.
    tokens = 2 * 64 * point.gradient_accumulation_steps
    assert result.tokens_per_second_low == pytest.approx(tokens / max(result.step_seconds))
    assert result.total_parameters == 5_048_576
    if point.lora_rank == 0:
        assert result.trainable_parameters == 5_048_576
    # Each event comes once.
    assert trials.phases() == ["load", "start", "first_step", "later_step"]
    assert [event["index"] for event in trials.events if event["event"] == "step"] == [0, 1, 2, 3]


def test_a_winner_of_two_processes_is_evaluated_and_saved(trials: Trials) -> None:
    result = trials.run(Point(zero_stage=2), processes=2, confirm=True, budget_bytes=1 << 30)
    assert result.outcome is Outcome.OK, result.message
    assert trials.phases() == ["load", "start", "first_step", "later_step", "evaluation", "saving"]


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_processes_that_are_out_of_memory_end_together_with_that_reason(trials: Trials, share: float) -> None:
    free = trials.run(Point(zero_stage=2, micro_batch_size=4), processes=2)
    assert free.peak_allocated_bytes is not None
    budget = int(share * free.peak_allocated_bytes)
    result = trials.run(Point(zero_stage=2, micro_batch_size=4), processes=2, budget_bytes=budget)
    assert result.outcome is Outcome.OOM, result.message
    assert trials.run().outcome is Outcome.OK


@pytest.mark.parametrize("rank", [0, 1])
def test_one_process_that_dies_ends_the_other(trials: Trials, rank: int) -> None:
    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["index"] == 1:
            children = sorted(trials.server().children(), key=lambda child: child.pid)
            assert len(children) == 2
            children[rank].kill()

    result = trials.run(
        Point(zero_stage=2), processes=2, on_event=kill, max_timed_steps=500, timeout_seconds=60
    )
    assert result.outcome is Outcome.CRASH
    assert result.phase in (Phase.FIRST_STEP, Phase.LATER_STEP, Phase.FORWARD, Phase.BACKWARD)
    # Which of the two told its end first is a matter of chance; that the other did not wait for ever is not.
    assert result.trial_seconds is not None and result.trial_seconds < 50
    assert trials.server().children() == []
    assert trials.run().outcome is Outcome.OK
