"""Records as an export writes them, for models that a test builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.export import Winner
from autotune.export.record import winner_record
from autotune.models import resolve_model
from trials.ds_config import deepspeed_config
from trials.wire import Outcome, Phase, Point, TrialResult

LINEAR = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")


def write_record(folder: Path, model: str = "tiny-llama", **point: Any) -> Path:
    """`autotune.json` of a winner with these fields, measured on the CPU."""
    won = Point(**point)
    result = TrialResult(
        trial_id="trial-1",
        outcome=Outcome.OK,
        phase=Phase.LATER_STEP,
        lora_targets=LINEAR if won.lora_rank and "llama" in model else None,
        ds_config=deepspeed_config(
            won, trainable_parameters=100_000, largest_parameter=2**20, device="cpu", torch_adam=True
        ),
    )
    winner = Winner(
        study="s",
        model=resolve_model(model),
        seq_len=64,
        global_batch=8,
        device="cpu",
        point=won,
        result=result,
        lora_targets=None,
        gpu_budget_bytes=2**30,
        load_weights=False,
        created="2026-01-01T00:00:00+00:00",
        command="autotune run",
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "autotune.json"
    path.write_text(json.dumps(winner_record(winner)))
    return path
