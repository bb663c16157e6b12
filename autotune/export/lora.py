"""The winner's LoRA adapters as peft's LoraConfig takes them."""

from __future__ import annotations

from typing import Any

from autotune.export.winner import Winner

ALPHA_PER_RANK = 2


def lora_settings(winner: Winner) -> dict[str, Any] | None:
    """Keyword arguments of `peft.LoraConfig`, the content of an `adapter_config.json`; None without LoRA.

    What is not in them has peft's default. Checked with peft 0.21.2.
    """
    rank = winner.point.lora_rank
    if rank == 0:
        return None
    targets = winner.target_modules
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": ALPHA_PER_RANK * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        # peft's word for every linear layer but the output head, where a trial did not say which those are.
        "target_modules": sorted(targets) if targets else "all-linear",
    }
