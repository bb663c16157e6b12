"""Activation checkpointing by share: exactly the first layers are computed twice, gradients stay the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from autotune.models import resolve_model
from trials.adapters import add_adapters
from trials.checkpointing import checkpointed_layers, decoder_layers, set_checkpoint_fraction
from trials.model_build import InvalidPoint, build_model
from trials.wire import ModelSpec, Point

CPU = torch.device("cpu")
TOKENS = torch.arange(32).reshape(2, 16)


def model_of(spec: ModelSpec, lora_rank: int = 0) -> Any:
    torch.manual_seed(0)
    # Dropout differs between two passes; gradients are compared here.
    config = {key: 0.0 if key.endswith("_pdrop") else value for key, value in spec.config.items()}
    point = Point(precision="fp32", lora_rank=lora_rank)
    built = build_model(spec.model_copy(update={"config": config}), point, device=CPU)
    return (add_adapters(built, point, None) if lora_rank else built).train()


def recomputed(model: Any) -> list[bool]:
    """For each decoder layer whether a training step computes it twice."""
    counts: Counter[int] = Counter()
    layers = decoder_layers(model.get_base_model() if hasattr(model, "get_base_model") else model)
    inner = [next(module for module in layer.children()) for layer in layers]
    hooks = [
        module.register_forward_pre_hook(lambda *_, index=index: counts.update([index]))
        for index, module in enumerate(inner)
    ]
    model(input_ids=TOKENS, labels=TOKENS, use_cache=False).loss.backward()
    for hook in hooks:
        hook.remove()
    assert set(counts.values()) <= {1, 2} and len(counts) == len(layers)
    return [counts[index] == 2 for index in range(len(layers))]


@pytest.mark.parametrize(
    ("fraction", "layers", "expected"),
    [
        (0, 32, 0),
        (1, 32, 32),
        (0.5, 32, 16),
        (0.25, 28, 7),
        # A half goes to the even neighbour: 7.5, 22.5, 0.5 and 1.5 layers.
        (0.25, 30, 8),
        (0.75, 30, 22),
        (0.25, 2, 0),
        (0.25, 6, 2),
        (0.25, 1, 0),
        (0.75, 1, 1),
        (0.33, 4, 1),
        (1, 0, 0),
    ],
)
def test_a_share_is_rounded_to_whole_layers(fraction: float, layers: int, expected: int) -> None:
    assert checkpointed_layers(fraction, layers) == expected


@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize(("fraction", "share"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2", "tiny-moe"])
def test_exactly_the_first_layers_are_computed_twice(
    name: str, fraction: float, share: int, lora_rank: int
) -> None:
    model = model_of(resolve_model(name), lora_rank)
    set_checkpoint_fraction(model, fraction)
    assert recomputed(model) == [index < share for index in range(4)]


def test_six_layers_have_their_quarter_rounded() -> None:
    model = model_of(resolve_model("tiny-qwen2"))
    set_checkpoint_fraction(model, 0.25)
    assert recomputed(model) == [True, True, False, False, False, False]


def test_the_share_can_change_on_a_live_model() -> None:
    model = model_of(resolve_model("tiny-llama"))
    for fraction, expected in ((1.0, 4), (0.5, 2), (0.0, 0), (0.25, 1)):
        set_checkpoint_fraction(model, fraction)
        assert sum(recomputed(model)) == expected


def test_gradients_are_the_same_with_and_without(tiny: ModelSpec) -> None:
    model = model_of(tiny)
    gradients = []
    for fraction in (0.0, 0.5, 1.0):
        set_checkpoint_fraction(model, fraction)
        model.zero_grad()
        model(input_ids=TOKENS, labels=TOKENS, use_cache=False).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for other in gradients[1:]:
        assert len(other) == len(gradients[0])
        assert all(
            torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(gradients[0], other, strict=True)
        )


def test_a_frozen_base_still_trains_its_adapters_under_checkpointing() -> None:
    # With reentrant checkpointing a frozen embedding would cut every gradient off.
    model = model_of(resolve_model("tiny-llama"), lora_rank=4)
    set_checkpoint_fraction(model, 1.0)
    model(input_ids=TOKENS, labels=TOKENS, use_cache=False).loss.backward()
    assert all(bool(p.grad.abs().sum() > 0) for n, p in model.named_parameters() if "lora_B" in n)


def test_decoder_layers_are_found_in_their_order(tiny: ModelSpec) -> None:
    model = model_of(tiny)
    layers = decoder_layers(model)
    assert len(layers) == tiny.config.get("num_hidden_layers", tiny.config.get("n_layer"))
    inner = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    assert all(found is one for found, one in zip(layers, inner, strict=True))


def test_a_model_without_layers_to_checkpoint_is_refused() -> None:
    class Bare(torch.nn.Module):
        supports_gradient_checkpointing = True

    with pytest.raises(InvalidPoint, match="Bare"):
        set_checkpoint_fraction(Bare(), 0.5)
    set_checkpoint_fraction(Bare(), 0)
