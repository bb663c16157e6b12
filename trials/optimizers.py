"""The optimizers DeepSpeed does not make itself: bitsandbytes' 8-bit AdamW, plain and paged.

Checked with bitsandbytes 0.50.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from trials.ds_config import LEARNING_RATE
from trials.wire import Point


def client_optimizer(point: Point, parameters: Sequence[nn.Parameter]) -> Any | None:
    """The optimizer handed to `deepspeed.initialize`; None where DeepSpeed makes its own."""
    if point.optimizer == "adamw":
        return None
    import bitsandbytes as bnb

    kind = bnb.optim.AdamW8bit if point.optimizer == "adamw8bit" else bnb.optim.PagedAdamW8bit
    return kind(parameters, lr=LEARNING_RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
