"""Real trials on the CPU: each stage and offload, ranks, shares, quantization and each tiny architecture."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from trial_runs import Trials

from autotune.models import list_cards, resolve_model
from trials.ds_config import deepspeed_config
from trials.wire import Outcome, Phase, Point, TrialResult

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Of tiny-llama: in + out of the adapted matrices of a layer, times its four layers.
LORA_ELEMENTS_PER_RANK = 4 * (2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 704))
VOCABULARY = 4096
STEPS = ("load", "start", "first_step", "later_step")


def check(
    trials: Trials, result: TrialResult, point: Point, model: str = "tiny-llama", processes: int = 1
) -> None:
    """What holds for every trial that went well."""
    assert result.outcome is Outcome.OK, result.message
    assert result.message == ""
    assert result.phase is Phase.LATER_STEP
    # Two warm-up steps and two timed ones. A random model knows nothing: its loss is that of a guess.
    assert len(result.step_seconds) == 2
    assert len(result.losses) == 4
    assert result.losses[0] == pytest.approx(math.log(VOCABULARY), abs=0.5)
    low, middle, high = result.tokens_per_second_low, result.tokens_per_second, result.tokens_per_second_high
    assert low is not None and middle is not None and high is not None
    assert 0 < low <= middle <= high
    tokens = point.micro_batch_size * point.gradient_accumulation_steps * 64 * processes
    assert low == pytest.approx(tokens / max(result.step_seconds))
    [parameters] = [card.parameters for card in list_cards() if card.name == model]
    assert result.total_parameters == parameters
    if point.lora_rank == 0:
        assert result.trainable_parameters == parameters
    assert set(STEPS) <= result.phase_peak_allocated_bytes.keys()
    peaks = [result.phase_peak_allocated_bytes[phase] for phase in STEPS]
    assert result.setup_peak_allocated_bytes == max(peaks[:2])
    assert result.peak_allocated_bytes == max(peaks[2:])
    assert result.device_bytes is not None and result.device_bytes >= max(peaks) > 0
    assert result.required_device_bytes is not None and result.required_device_bytes >= max(peaks)
    assert result.setup_seconds is not None and result.trial_seconds is not None
    assert 0 < result.setup_seconds < result.trial_seconds
    assert {"torch", "transformers", "deepspeed"} <= result.versions.keys()
    # The engine was given the point's configuration, and has not changed what we tell of it.
    assert result.ds_config == deepspeed_config(
        point,
        trainable_parameters=result.trainable_parameters or 0,
        largest_parameter=largest_parameter(result, model),
        device="cpu",
        processes=processes,
        torch_adam=True,
    )
    json.dumps(result.ds_config)
    assert trials.phases()[:4] == list(STEPS)
    steps = [event for event in trials.events if event["event"] == "step"]
    assert [event["index"] for event in steps] == [0, 1, 2, 3]
    assert [event["timed"] for event in steps] == [False, False, True, True]


def largest_parameter(result: TrialResult, model: str) -> int:
    # Only NVMe offload depends on it.
    return VOCABULARY * 256


@pytest.mark.parametrize(
    "values",
    [
        {"zero_stage": 1, "gradient_accumulation_steps": 3},
        {"zero_stage": 3, "micro_batch_size": 2, "zero_bucket_elements": 10_000},
        {"precision": "fp32"},
        {"precision": "fp32", "zero_stage": 2},
        {"checkpoint_fraction": 0.25},
        {"checkpoint_fraction": 0.5, "zero_stage": 3},
        {"checkpoint_fraction": 1.0, "attention": "eager"},
        {"optimizer": "adamw8bit"},
        {"optimizer": "adamw8bit", "zero_stage": 2},
        {"optimizer": "adamw8bit", "zero_stage": 3},
    ],
    ids=str,
)
def test_a_configuration_of_full_fine_tuning_runs(trials: Trials, values: dict[str, Any]) -> None:
    point = Point(**values)
    check(trials, trials.run(point), point)


@pytest.mark.parametrize(
    "values",
    [
        {"zero_stage": 1, "offload": "optimizer"},
        {"zero_stage": 2, "offload": "optimizer", "gradient_accumulation_steps": 2},
        {"zero_stage": 3, "offload": "optimizer"},
        {"zero_stage": 3, "offload": "optimizer+parameters", "lora_rank": 8, "checkpoint_fraction": 1.0},
        {"zero_stage": 3, "offload": "optimizer+parameters", "lora_rank": 8, "quantization": "nf4"},
        {"zero_stage": 3, "offload": "optimizer+parameters", "precision": "fp32"},
    ],
    ids=str,
)
def test_an_offloading_configuration_runs(offloading_trials: Trials, values: dict[str, Any]) -> None:
    point = Point(**values)
    check(offloading_trials, offloading_trials.run(point), point)


@pytest.mark.parametrize(
    "values",
    [
        {"lora_rank": 8, "checkpoint_fraction": 0.5},
        {"lora_rank": 64, "zero_stage": 2},
        {"lora_rank": 8, "zero_stage": 3},
        {"lora_rank": 16, "precision": "fp32"},
        {"lora_rank": 16, "quantization": "int8"},
        {"lora_rank": 16, "quantization": "nf4", "zero_stage": 2, "checkpoint_fraction": 1.0},
        {"lora_rank": 16, "quantization": "nf4", "optimizer": "adamw8bit"},
    ],
    ids=str,
)
def test_adapters_alone_are_trained(trials: Trials, values: dict[str, Any]) -> None:
    point = Point(**values)
    result = trials.run(point)
    check(trials, result, point)
    assert result.trainable_parameters == point.lora_rank * LORA_ELEMENTS_PER_RANK
    assert result.lora_targets == (
        "down_proj",
        "gate_proj",
        "k_proj",
        "o_proj",
        "q_proj",
        "up_proj",
        "v_proj",
    )


@pytest.mark.parametrize("model", ["tiny-qwen2", "tiny-gpt2", "tiny-moe"])
@pytest.mark.parametrize(
    "values",
    [{"checkpoint_fraction": 0.5}, {"zero_stage": 3}, {"lora_rank": 8, "quantization": "nf4"}],
    ids=str,
)
def test_every_tiny_architecture_runs(trials: Trials, model: str, values: dict[str, Any]) -> None:
    point = Point(**values)
    check(trials, trials.run(point, model=model), point, model)


def test_the_users_lora_targets_are_those_that_run(trials: Trials) -> None:
    result = trials.run(Point(lora_rank=8), lora_targets=("v_proj", "q_proj"))
    assert result.lora_targets == ("q_proj", "v_proj")
    assert result.trainable_parameters == 8 * 4 * ((256 + 256) + (256 + 128))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"zero_stage": 2},
        {"zero_stage": 3, "offload": "optimizer+parameters"},
        {"lora_rank": 8},
        {"lora_rank": 8, "zero_stage": 3, "quantization": "nf4"},
    ],
    ids=str,
)
def test_a_winner_is_evaluated_saved_and_run_under_its_claim(
    offloading_trials: Trials, values: dict[str, Any]
) -> None:
    trials = offloading_trials
    result = trials.run(Point(**values), confirm=True, budget_bytes=1 << 30)
    assert result.outcome is Outcome.OK, result.message
    assert trials.phases() == [*STEPS, "evaluation", "saving", "later_step"]
    assert {"evaluation", "saving"} <= result.phase_peak_allocated_bytes.keys()
    assert result.required_verified
    assert result.required_device_bytes is not None
    assert max(result.phase_peak_allocated_bytes.values()) <= result.required_device_bytes < 1 << 30
    # What other work on the machine did to the steps may be noted, and nothing else.
    notes = [event["text"] for event in trials.events if event["event"] == "note"]
    assert [text for text in notes if not text.startswith(("other processes used", "the steps became"))] == []


def test_a_checkpoint_that_was_tried_is_not_left_behind(trials: Trials, tmp_path: Path) -> None:
    trials.run(Point(zero_stage=1), confirm=True, work_dir=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] in ([], ["process-group"])


def test_a_clearly_slower_point_is_stopped_early(trials: Trials) -> None:
    result = trials.run(max_timed_steps=50, measure_seconds=60.0, stop_below_tokens_per_second=1e9)
    assert result.outcome is Outcome.STOPPED
    assert len(result.step_seconds) == 1
    assert result.tokens_per_second is not None and result.tokens_per_second < 1e9


def test_timing_ends_when_its_time_is_up(trials: Trials) -> None:
    result = trials.run(max_timed_steps=10_000, measure_seconds=0.3, target_spread=0.0, min_timed_steps=3)
    assert result.outcome is Outcome.OK
    assert 3 <= len(result.step_seconds) < 1000
    assert sum(result.step_seconds[:-1]) <= 1.0


def test_steps_that_agree_are_enough_only_after_the_least_time(trials: Trials) -> None:
    generous: dict[str, Any] = {"max_timed_steps": 10_000, "measure_seconds": 60.0, "target_spread": 10.0}
    assert len(trials.run(**generous).step_seconds) == 2
    timed = trials.run(**generous, min_measure_seconds=0.6).step_seconds
    assert sum(timed) >= 0.5
    assert sum(timed[:-1]) < 0.6


def test_the_first_step_may_be_a_timed_one(trials: Trials) -> None:
    result = trials.run(warmup_steps=0)
    assert result.outcome is Outcome.OK
    assert len(result.losses) == len(result.step_seconds) == 2
    assert {"first_step", "later_step"} <= result.phase_peak_allocated_bytes.keys()


def test_the_same_seed_gives_the_same_losses(trials: Trials) -> None:
    first, again, other = (trials.run(seed=seed, max_timed_steps=1, min_timed_steps=1) for seed in (1, 1, 2))
    assert first.losses == pytest.approx(again.losses, abs=1e-3)
    assert first.losses[0] != other.losses[0]


def test_a_model_can_be_asked_about_before_any_trial(trials: Trials) -> None:
    facts = trials.runner.inspect_model(resolve_model("tiny-qwen2"))
    assert facts["refused_attentions"] == ["flash_attention_2"]
    assert facts["layers"] == 6
    assert facts["total_parameters"] == 5_773_568
    assert facts["largest_parameter"] == VOCABULARY * 256
