"""Activation checkpointing by share: the first round(fraction x layers) decoder layers are recomputed.

The first and not the last: the last layers' activations are freed first in the backward pass, before the
recomputation of the others needs room.

Checked with transformers 5.17.0.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from trials.model_build import InvalidPoint


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The model's decoder layers in order: the longest list of layers that transformers can checkpoint."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    lists = [
        [layer for layer in module if isinstance(layer, GradientCheckpointingLayer)]
        for module in model.modules()
        if isinstance(module, nn.ModuleList)
    ]
    return max(lists, key=len, default=[])


def checkpointed_layers(fraction: float, layers: int) -> int:
    """How many layers a share recomputes, rounded as Python rounds."""
    return round(fraction * layers)


def set_checkpoint_fraction(model: Any, fraction: float) -> None:
    """Recompute the activations of the first layers; can be called again on a live model.

    Raises:
        InvalidPoint: the model cannot checkpoint its layers one by one.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if fraction == 0:
        if getattr(base, "is_gradient_checkpointing", False):
            base.gradient_checkpointing_disable()
        return
    layers = decoder_layers(base)
    if not base.supports_gradient_checkpointing or not layers:
        raise InvalidPoint(
            f"{type(base).__name__} cannot checkpoint its layers: set checkpoint_fraction: [0]"
        )
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    recomputed = {id(layer) for layer in layers[: checkpointed_layers(fraction, len(layers))]}
    for module in base.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = id(module) in recomputed
