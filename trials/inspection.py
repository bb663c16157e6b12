"""What the installed libraries can do with a model: asked of them, since their answers differ by version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trials.adapters import refused_targets
from trials.checkpointing import decoder_layers
from trials.model_build import InvalidPoint, empty_model
from trials.wire import Attention, ModelSpec, Point

ATTENTIONS: tuple[Attention, ...] = ("sdpa", "eager", "flash_attention_2")


def inspect_model(model: ModelSpec, lora_targets: Sequence[str] | None = None) -> dict[str, Any]:
    """Facts of a model, as plain values.

    Args:
        model: to look at.
        lora_targets: module names that adapters are wanted for; None: nothing is said of them.

    Returns:
        `refused_attentions` (names), `liger` (whether liger-kernel knows it), `layers` that can be
        checkpointed one by one, `total_parameters` (tied ones once), `largest_parameter` (elements),
        `refused_targets` (why adapters cannot be made as wanted; empty where they can).

    Raises:
        InvalidPoint: no attention at all builds the model.
    """
    refused, built, reason = [], None, ""
    for attention in ATTENTIONS:
        try:
            one = empty_model(model, Point(attention=attention))
        except InvalidPoint as error:
            refused.append(attention)
            if attention == "eager":
                # The one that every architecture has: what is wrong with it is not the attention.
                reason = str(error)
        else:
            built = built or one
    if built is None:
        raise InvalidPoint(reason)
    sizes = {id(parameter): parameter.numel() for parameter in built.parameters()}
    layers = decoder_layers(built) if built.supports_gradient_checkpointing else []
    return {
        "refused_attentions": refused,
        "liger": _liger_knows(built.config.model_type),
        "layers": len(layers),
        "total_parameters": sum(sizes.values()),
        "largest_parameter": max(sizes.values()),
        "refused_targets": refused_targets(built, lora_targets) if lora_targets else "",
    }


def _liger_knows(model_type: str) -> bool:
    try:
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    except ImportError:
        return False
    return model_type in MODEL_TYPE_TO_APPLY_LIGER_FN
