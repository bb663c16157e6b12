"""Trials that die: each way of dying has its outcome, and the next trial runs as if nothing had been."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from trial_runs import Trials, asked_bytes

from autotune.models import resolve_model
from trials.wire import ModelSpec, Outcome, Phase, Point, TrialResult

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FORWARD_TO_STEP = {Phase.FORWARD, Phase.BACKWARD, Phase.FIRST_STEP}
LONG: dict[str, Any] = {"max_timed_steps": 100_000, "measure_seconds": 600.0, "target_spread": 0.0}


@pytest.fixture(autouse=True)
def nothing_left(trials: Trials) -> Iterator[None]:
    """No death may cost the pre-warmed process or leave a process behind."""
    before = trials.server().pid
    yield
    assert trials.server().pid == before
    assert trials.server().children(recursive=True) == []


def tiny(**changes: Any) -> ModelSpec:
    spec = resolve_model("tiny-llama")
    return spec.model_copy(update={"config": {**spec.config, **changes}})


def at_event(trials: Trials, name: str, act: Any) -> Any:
    """An `on_event` that acts on the trial's process once, at a phase or a step."""

    def on_event(event: dict[str, Any]) -> None:
        if name in (event.get("phase"), event.get("index")) and not done:
            done.append(True)
            [process] = trials.server().children()
            act(process)

    done: list[bool] = []
    return on_event


FULL = Point(micro_batch_size=8)
SHARDED = Point(micro_batch_size=8, zero_stage=1)


@pytest.fixture(scope="module")
def free(trials: Trials) -> dict[Point, TrialResult]:
    """Runs without a limit."""
    results = {point: trials.run(point) for point in (FULL, SHARDED)}
    assert all(result.outcome is Outcome.OK for result in results.values())
    return results


@pytest.mark.parametrize(
    ("point", "below", "above", "share", "phases"),
    [
        # Between the peaks of one phase and the next: `share` of the way.
        (FULL, None, "load", 0.9, {Phase.LOAD}),
        (FULL, "load", "start", 0.5, {Phase.START}),
        (FULL, "start", "first_step", 0.5, FORWARD_TO_STEP),
        (SHARDED, "load", "start", 0.5, {Phase.START}),
        # With ZeRO Adam's state appears in the first step, after forward and backward.
        (SHARDED, "start", "first_step", 0.7, {Phase.FIRST_STEP}),
    ],
    ids=["load", "start", "forward and backward", "start, stage 1", "first step, stage 1"],
)
def test_a_budget_below_a_phases_peak_is_a_real_out_of_memory_there(
    trials: Trials,
    free: dict[Point, TrialResult],
    point: Point,
    below: str | None,
    above: str,
    share: float,
    phases: set[Phase],
) -> None:
    peaks = free[point].phase_peak_allocated_bytes
    low = peaks[below] if below else 0
    budget = int(low + share * (peaks[above] - low))
    result = trials.run(point, budget_bytes=budget)
    assert result.outcome is Outcome.OOM, result.message
    assert result.phase in phases
    assert result.tokens_per_second is None
    assert result.device_bytes is not None and 0 < result.device_bytes <= budget
    assert all(peak <= budget for peak in result.phase_peak_allocated_bytes.values())
    asked = asked_bytes(result.message)
    assert result.oom_requested_bytes == asked
    if asked is not None and result.oom_short_bytes is not None:
        assert 0 < result.oom_short_bytes <= asked


def test_the_budget_that_was_told_to_be_enough_is_enough(
    trials: Trials, free: dict[Point, TrialResult]
) -> None:
    for point, result in free.items():
        again = trials.run(point, budget_bytes=result.required_device_bytes)
        assert again.outcome is Outcome.OK, again.message
        assert again.required_device_bytes is not None and result.required_device_bytes is not None
        assert again.required_device_bytes <= result.required_device_bytes


def test_a_budget_below_what_starting_takes_is_an_out_of_memory_too(trials: Trials) -> None:
    result = trials.run(budget_bytes=1 << 20)
    assert result.outcome is Outcome.OOM, result.message
    assert result.phase is Phase.LOAD


@pytest.mark.parametrize("values", [{"lora_rank": 8, "quantization": "nf4"}, {"zero_stage": 3}], ids=str)
def test_every_kind_of_engine_reports_its_out_of_memory(trials: Trials, values: dict[str, Any]) -> None:
    point = Point(micro_batch_size=8, **values)
    unlimited = trials.run(point)
    assert unlimited.peak_allocated_bytes is not None
    for share in (0.3, 0.5, 0.7, 0.9):
        result = trials.run(point, budget_bytes=int(share * unlimited.peak_allocated_bytes))
        assert result.outcome is Outcome.OOM, (share, result.message)


@pytest.mark.parametrize("at", ["load", "start", "first_step", 2], ids=str)
def test_a_killed_trial_is_a_crash_in_the_phase_it_was_in_and_the_next_one_runs(
    trials: Trials, at: Any
) -> None:
    result = trials.run(on_event=at_event(trials, at, psutil.Process.kill), **LONG)
    assert result.outcome is Outcome.CRASH
    assert "SIGKILL" in result.message
    later = {
        "load": "load start",
        "start": "start first_step",
        "first_step": "first_step later_step",
        2: "later_step",
    }
    assert str(result.phase) in later[at].split()
    assert result.host_peak_bytes is not None and result.host_peak_bytes > 50 << 20
    assert trials.run().outcome is Outcome.OK


def test_a_trial_that_hangs_ends_with_its_time(trials: Trials) -> None:
    began = time.monotonic()
    result = trials.run(on_event=at_event(trials, 1, psutil.Process.suspend), timeout_seconds=4.0, **LONG)
    assert result.outcome is Outcome.TIMEOUT
    assert result.phase is Phase.LATER_STEP
    assert re.fullmatch(r"still in phase later_step after [45] s", result.message)
    assert time.monotonic() - began < 20


def test_a_trial_that_only_takes_too_long_ends_with_its_time(trials: Trials) -> None:
    result = trials.run(timeout_seconds=3.0, **LONG)
    assert result.outcome is Outcome.TIMEOUT
    assert result.trial_seconds is not None and 2.9 < result.trial_seconds < 10


@pytest.mark.parametrize("values", [{}, {"zero_stage": 2}, {"zero_stage": 3, "precision": "fp32"}], ids=str)
def test_a_loss_that_is_not_finite_is_nan(trials: Trials, values: dict[str, Any]) -> None:
    # Every norm takes the root of a negative number.
    result = trials.run(Point(**values), model=tiny(rms_norm_eps=-1e6))
    assert result.outcome is Outcome.NAN, result.message
    assert re.match(r"the loss became (nan|inf|-inf) in optimizer step 1$", result.message)


@pytest.mark.parametrize(
    ("values", "spec", "words"),
    [
        ({}, {"model": ModelSpec(name="x", config={"model_type": "nosuch"})}, "nosuch"),
        ({}, {"model": ModelSpec(name="x", config={"model_type": "t5"})}, "AutoModelForCausalLM"),
        ({}, {"model": tiny(initializer_range=1e30)}, "initializer_range"),
        ({}, {"model": tiny(num_attention_heads="four")}, "num_attention_heads"),
        ({"attention": "flash_attention_2"}, {}, "lash"),
        ({"lora_rank": 8}, {"lora_targets": ("nosuch_proj",)}, "nosuch_proj"),
        (
            {"zero_stage": 3, "offload": "optimizer+parameters"},
            {"model": ModelSpec(name="x", config={})},
            "None",
        ),
    ],
    ids=[
        "type",
        "no language model",
        "out of range",
        "not a number",
        "attention",
        "targets",
        "type under parameter offload",
    ],
)
def test_what_cannot_be_built_is_invalid_and_says_why(
    trials: Trials, values: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    result = trials.run(Point(**values), **spec)
    assert result.outcome is Outcome.INVALID
    assert result.phase is Phase.LOAD
    assert words in result.message
    assert "\n" not in result.message


def test_a_model_with_absurd_numbers_is_a_crash_with_the_librarys_words(trials: Trials) -> None:
    result = trials.run(model=tiny(num_key_value_heads=3))
    assert result.outcome in (Outcome.CRASH, Outcome.INVALID)
    assert result.message


def test_more_host_memory_than_allowed_ends_the_trial(trials: Trials) -> None:
    result = trials.run(host_budget_bytes=64 << 20, **LONG)
    assert result.outcome is Outcome.HOST_OOM
    assert "64" in result.message or "0.1 GiB" in result.message
    assert result.host_peak_bytes is not None and result.host_peak_bytes > 64 << 20


def test_an_interrupt_kills_the_trial_and_is_passed_on(trials: Trials) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event.get("index") == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trials.run(on_event=interrupt, **LONG)
    assert trials.server().children() == []


def test_an_error_in_the_observer_kills_the_trial_and_is_passed_on(trials: Trials) -> None:
    def fail(event: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trials.run(on_event=fail, **LONG)
    assert trials.server().children() == []


def test_after_all_these_deaths_a_trial_runs_as_ever(trials: Trials) -> None:
    result = trials.run()
    assert result.outcome is Outcome.OK, result.message
