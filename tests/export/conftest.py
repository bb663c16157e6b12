from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autotune.export import Winner
from trials.ds_config import deepspeed_config
from trials.wire import ModelSpec, Outcome, Phase, Point, TrialResult

TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": 1,
}
LINEAR = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")

MakeWinner = Callable[..., Winner]


def trial_result(point: Point, **values: Any) -> TrialResult:
    """What a trial of this point on the tiny llama would report."""
    return TrialResult(
        **{
            "trial_id": "trial-1",
            "outcome": Outcome.OK,
            "phase": Phase.LATER_STEP,
            "tokens_per_second": 1234.5,
            "tokens_per_second_low": 1200.0,
            "tokens_per_second_high": 1300.0,
            "required_device_bytes": 300 << 20,
            "device_bytes": 400 << 20,
            "host_peak_bytes": 2 << 30,
            "lora_targets": LINEAR if point.lora_rank else None,
            "versions": {"torch": "2.13.0+cpu", "transformers": "5.17.0", "peft": "0.21.2"},
            "ds_config": deepspeed_config(
                point,
                trainable_parameters=180_000,
                largest_parameter=16_384,
                device="cpu",
                nvme_path="/nvme" if point.offload.startswith("nvme_") else None,
                torch_adam=True,
            ),
            **values,
        }
    )


@pytest.fixture
def make_winner() -> MakeWinner:
    """Makes a winner on the tiny llama: `winner` replaces its fields, the rest are the point's."""

    def make(*, winner: dict[str, Any] | None = None, **point: Any) -> Winner:
        chosen = Point(**{"micro_batch_size": 2, "gradient_accumulation_steps": 2, **point})
        values: dict[str, Any] = {
            "study": "tiny-llama-lora-1GiB-3f9a2c",
            "model": ModelSpec(name="tiny-llama", config=TINY_LLAMA),
            "seq_len": 32,
            "global_batch": 4,
            "device": "cpu",
            "point": chosen,
            "result": trial_result(chosen),
            "lora_targets": None,
            "gpu_budget_bytes": 1 << 30,
            "load_weights": False,
            "created": "2026-05-04T03:02:01+00:00",
            "command": "autotune run --model tiny-llama --gpu-budget 1GB",
        }
        return Winner(**{**values, **(winner or {})})

    return make
