"""LoRA adapters through peft, as exported: alpha = 2 x rank, dropout 0, in the compute precision.

Checked with peft 0.21.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trials.model_build import DTYPES, InvalidPoint
from trials.wire import Point

ALPHA_PER_RANK = 2


def add_adapters(model: Any, point: Point, targets: Sequence[str] | None) -> Any:
    """The model with LoRA adapters on the targets (None: every linear layer except the output head).

    Raises:
        InvalidPoint: no module of the model bears a target's name.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=point.lora_rank,
        lora_alpha=ALPHA_PER_RANK * point.lora_rank,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=list(targets) if targets else "all-linear",
    )
    try:
        # DeepSpeed keeps the adapters' fp32 master; in fp32 they would only be cast back.
        adapted = get_peft_model(model, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise InvalidPoint(" ".join(str(error).split())) from error
    dtype = DTYPES[point.precision]
    for parameter in adapted.parameters():
        if parameter.requires_grad and parameter.dtype != dtype:
            # Over a quantised base peft cannot read the precision from the base weight and leaves fp32.
            parameter.data = parameter.data.to(dtype)
    return adapted


def resolved_targets(model: Any) -> tuple[str, ...]:
    """The adapted modules' names, shortest form that peft accepts (their last component), sorted."""
    names = model.targeted_module_names
    return tuple(sorted({name.rpartition(".")[2] for name in names}))


def trainable(model: Any) -> list[torch.nn.Parameter]:
    """The parameters that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
