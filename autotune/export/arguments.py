"""The winner in the words of transformers' TrainingArguments, which most trainers share.

Checked with transformers 5.17.0.
"""

from __future__ import annotations

from typing import Any

from autotune.export.winner import Winner
from trials.ds_config import LEARNING_RATE

OPTIMIZERS = {"adamw": "adamw_torch", "adamw8bit": "adamw_bnb_8bit", "paged_adamw8bit": "paged_adamw_8bit"}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def batch_arguments(winner: Winner) -> dict[str, Any]:
    """Micro batch, accumulation and the largest gradient norm.

    Evaluation has the micro batch with which the longer run evaluated; eight by default may not fit.
    """
    point = winner.point
    return {
        "per_device_train_batch_size": point.micro_batch_size,
        "per_device_eval_batch_size": point.micro_batch_size,
        "gradient_accumulation_steps": point.gradient_accumulation_steps,
        "max_grad_norm": clipping(winner),
    }


def precision_arguments(winner: Winner) -> dict[str, Any]:
    """bf16 and fp16, both said: trainers have defaults of their own. tf32 where it was measured with it."""
    precision = winner.point.precision
    arguments: dict[str, Any] = {"bf16": precision == "bf16", "fp16": precision == "fp16"}
    if winner.measured.tf32:
        arguments["tf32"] = True
    return arguments


def optimizer_arguments(winner: Winner) -> dict[str, Any]:
    """The optimizer; with AdamW it is the one of the DeepSpeed configuration that trains."""
    return {"optim": OPTIMIZERS[winner.point.optimizer], "weight_decay": 0.0}


def checkpointing_arguments(winner: Winner) -> dict[str, Any]:
    """Every layer or none: a share becomes every layer, which fits wherever the share did."""
    if winner.point.checkpoint_fraction == 0:
        return {"gradient_checkpointing": False}
    return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}


def schedule_arguments() -> dict[str, Any]:
    """What does not change memory or speed, to begin with."""
    return {
        "learning_rate": LEARNING_RATE,
        "num_train_epochs": 1,
        "logging_steps": 10,
        "save_strategy": "no",
        "report_to": "none",
        "output_dir": "trained",
    }


def device_arguments(winner: Winner) -> dict[str, Any]:
    """On a GPU nothing; a winner of the CPU is trained there."""
    return {"use_cpu": True} if winner.device == "cpu" else {}


def clipping(winner: Winner) -> float:
    """The largest gradient norm; 0.0: not clipped."""
    return float(winner.ds_config.get("gradient_clipping", 0.0))
