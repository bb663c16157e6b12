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
        InvalidPoint: there are targets whose names no linear layer of the model bears.
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
    names = _linear_names(model) if targets else []
    try:
        # DeepSpeed keeps the adapters' fp32 master; in fp32 they would only be cast back.
        adapted = get_peft_model(model, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise InvalidPoint(_refusal(targets, names, error)) from error
    # Peft passes over a name that no module bears, as long as another one is found.
    missing = _missing_targets(adapted, targets or ())
    if missing:
        raise InvalidPoint(_missing_words(missing, names))
    dtype = DTYPES[point.precision]
    for parameter in adapted.parameters():
        if parameter.requires_grad and parameter.dtype != dtype:
            # Over a quantised base peft cannot read the precision from the base weight and leaves fp32.
            parameter.data = parameter.data.to(dtype)
    return adapted


def refused_targets(model: Any, targets: Sequence[str]) -> str:
    """Why adapters cannot be made for each of the targets; empty where they can.

    Args:
        model: without adapters; it has some afterwards.
        targets: what was asked for.
    """
    try:
        add_adapters(model, Point(lora_rank=1), targets)
    except InvalidPoint as error:
        return str(error)
    return ""


def _missing_targets(adapted: Any, targets: Sequence[str]) -> list[str]:
    """The targets that no adapted module bears the name of."""
    found = [*adapted.targeted_module_names, *_expert_targets(adapted)]
    return [one for one in targets if not any(name == one or name.endswith(f".{one}") for name in found)]


def _refusal(targets: Sequence[str] | None, names: Sequence[str], error: ValueError) -> str:
    """Why peft makes no adapters, with the names that it would take."""
    if targets and not any(name.split(".")[-1] in names for name in targets):
        return _missing_words(targets, names)
    return " ".join(str(error).split())


def _linear_names(model: Any) -> list[str]:
    """The last components of the names of all linear layers but the head, each once."""
    from transformers.pytorch_utils import Conv1D

    return list(
        dict.fromkeys(
            name.rpartition(".")[2]
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear | Conv1D) and module is not model.get_output_embeddings()
        )
    )


def _missing_words(missing: Sequence[str], names: Sequence[str]) -> str:
    return f"the model has no linear layer {' or '.join(missing)}: it has {', '.join(names)}"


def resolved_targets(model: Any, targets: Sequence[str] | None) -> tuple[str, ...]:
    """Names that make the same adapters again when they are given as peft's `target_modules`, sorted.

    Args:
        model: with its adapters.
        targets: what was asked for; it is the answer where it was not None.
    """
    if targets:
        return tuple(sorted(targets))
    adapted = set(model.targeted_module_names)
    leaves = {name.rpartition(".")[2] for name in adapted}
    named = {name for name, _ in model.get_base_model().named_modules() if name.rpartition(".")[2] in leaves}
    # A last component that also names a module without an adapter would widen the choice.
    return tuple(sorted((leaves if named == adapted else adapted) | _expert_targets(model)))


def _expert_targets(model: Any) -> set[str]:
    """Peft's names of adapted experts and routers, which transformers 5 no longer keeps as linear layers."""
    from peft.utils.transformers_weight_conversion import (
        _MODEL_TO_CONVERSION_PATTERN,
        _MOE_TARGET_MODULE_MAPPING,
    )

    adapted = tuple(model.targeted_parameter_names)
    pattern = _MODEL_TO_CONVERSION_PATTERN.get(model.get_base_model().config.model_type)
    names = _MOE_TARGET_MODULE_MAPPING.get(pattern, {})
    return {old for old, new in names.items() if any(name.endswith("." + new) for name in adapted)}


def trainable(model: Any) -> list[torch.nn.Parameter]:
    """The parameters that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
