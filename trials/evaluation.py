"""An evaluation pass, as transformers' Trainer and TRL's make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def evaluate(engine: Any, batch: Mapping[str, torch.Tensor], *, liger_kernel: bool) -> None:
    """One forward pass for the loss alone; the engine is back in training afterwards.

    By itself liger's fused loss makes all logits in evaluation, ten bytes each: more than a training step
    holds. Where only the loss is wanted both trainers (transformers 5.17.0, trl 1.14.0) ask it not to.

    Args:
        engine: started by DeepSpeed.
        batch: tokens and labels.
        liger_kernel: whether the model has liger's fused loss.
    """
    more = {"skip_logits": True} if liger_kernel else {}
    engine.eval()
    try:
        with torch.no_grad():
            float(engine(**batch, **more).loss)
    finally:
        engine.train()
