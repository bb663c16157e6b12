"""The DeepSpeed configuration with the numbers that Hugging Face's Trainer fills in left to it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

# What HfTrainerDeepSpeedConfig.trainer_config_process fills in from TrainingArguments (transformers 5.17.0).
# Bucket sizes are not among them: "auto" there is the hidden size squared, not what was measured.
TRAINER_FILLS = (
    ("train_micro_batch_size_per_gpu",),
    ("gradient_accumulation_steps",),
    ("train_batch_size",),
    ("gradient_clipping",),
    ("optimizer", "params", "lr"),
    ("optimizer", "params", "betas"),
    ("optimizer", "params", "eps"),
    ("optimizer", "params", "weight_decay"),
    ("bf16", "enabled"),
    ("fp16", "enabled"),
)


def auto_ds_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy for the Trainer, with "auto" for each number that it fills in from its arguments."""
    result = with_zero_block(config)
    for *parents, key in TRAINER_FILLS:
        block: Any = result
        for parent in parents:
            block = block.get(parent, {})
        if key in block:
            block[key] = "auto"
    return result


def auto_but_precision(config: Mapping[str, Any]) -> dict[str, Any]:
    """The Trainer's variant with the precision said: for who loads a model before the Trainer fills it in.

    `deepspeed.zero.Init` makes fp32 of a model whose configuration says "auto".
    """
    said = {name: config[name] for name in ("bf16", "fp16") if name in config}
    return auto_ds_config(config) | copy.deepcopy(said)


def with_zero_block(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that says ZeRO's stage also where it is 0: accelerate refuses a configuration that does not."""
    return {
        **copy.deepcopy(dict(config)),
        "zero_optimization": dict(config.get("zero_optimization", {"stage": 0})),
    }
