"""What the Trainer's attempts mean."""

from __future__ import annotations

from typing import Any

from benchmarks.rivals.hf_trainer import batch_found, failed_attempts


def attempt(batch: int, *step_seconds: float) -> dict[str, Any]:
    return {"batch": batch, "step_seconds": list(step_seconds)}


def test_the_last_attempt_is_what_was_found_and_its_slow_first_steps_do_not_count() -> None:
    attempts = [attempt(32), attempt(28, 9.0), attempt(25, 9.0, 3.0, 1.0, 1.0, 2.0)]
    # 25 sequences of 1,000 tokens in the median second.
    assert batch_found(attempts, 1000) == (25, 25_000.0)


def test_nothing_is_found_before_a_step_was_timed() -> None:
    assert batch_found([], 1000) == (None, None)
    assert batch_found([attempt(32), attempt(28, 9.0, 3.0)], 1000) == (None, None)


def test_each_attempt_but_a_last_one_that_may_have_gone_on_was_out_of_memory() -> None:
    attempts = [attempt(4), attempt(3), attempt(2)]
    assert failed_attempts(attempts, exhausted=False) == 2
    assert failed_attempts(attempts, exhausted=True) == 3
    assert failed_attempts([], exhausted=False) == 0
