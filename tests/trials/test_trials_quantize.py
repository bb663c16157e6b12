"""A quantised base is the one transformers would load; loading never holds more than it and one layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from live_bytes import LiveBytes
from torch import nn

from autotune.models import resolve_model
from trials.adapters import add_adapters
from trials.model_build import build_model
from trials.quantize import bitsandbytes_settings, is_quantized
from trials.wire import ModelSpec, Point, Quantization

CPU = torch.device("cpu")
NAMES = ["tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-moe"]


def point(quantization: Quantization) -> Point:
    return Point(lora_rank=8, quantization=quantization)


@cache
def _loaded(weights: str, quantization: str) -> Any:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    config = (
        BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
        if quantization == "nf4"
        else BitsAndBytesConfig(load_in_8bit=True)
    )
    return AutoModelForCausalLM.from_pretrained(
        weights, dtype=torch.bfloat16, quantization_config=config, device_map={"": "cpu"}
    )


def loaded_by_transformers(spec: ModelSpec, quantization: str) -> Any:
    assert spec.weights is not None
    return _loaded(spec.weights, quantization)


def layers_of(model: nn.Module) -> dict[str, str]:
    return {
        name: type(module).__name__
        for name, module in model.named_modules()
        if is_quantized(module) or isinstance(module, nn.Linear)
    }


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_quantised_is_what_transformers_quantises(
    saved: Callable[[str], ModelSpec], name: str, quantization: Quantization
) -> None:
    spec = saved(name)
    expected = loaded_by_transformers(spec, quantization)
    built = build_model(resolve_model(name), point(quantization), device=CPU)
    assert layers_of(built) == layers_of(expected)
    assert any(is_quantized(module) for module in built.modules())
    mine = {n: (p.shape, p.dtype, p.requires_grad) for n, p in built.named_parameters() if "weight" in n}
    theirs = {n: (p.shape, p.dtype, p.requires_grad) for n, p in expected.named_parameters() if "weight" in n}
    # transformers leaves requires_grad of the unquantised ones as it is; so does the trial.
    assert mine == theirs


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_real_weights_are_quantised_to_the_same_values(
    saved: Callable[[str], ModelSpec], name: str, quantization: Quantization
) -> None:
    spec = saved(name)
    expected = loaded_by_transformers(spec, quantization)
    built = build_model(spec, point(quantization), device=CPU)
    # Weights, scales and whatever is not quantised, as both would be saved.
    mine, theirs = built.state_dict(), expected.state_dict()
    assert mine.keys() == theirs.keys()
    assert any("absmax" in key or "SCB" in key for key in mine)
    for key, value in theirs.items():
        assert torch.equal(mine[key], value), key


def test_an_evaluation_pass_leaves_4_bit_weights_as_they_are() -> None:
    # bitsandbytes would pack them anew on a CPU with the right instructions, and training would go on so.
    built = build_model(resolve_model("tiny-llama"), point("nf4"), device=CPU).eval()
    before = {key: value.clone() for key, value in built.state_dict().items()}
    weight = built.model.layers[0].self_attn.q_proj.weight
    shape = weight.shape
    with torch.no_grad():
        built(input_ids=torch.arange(32).reshape(1, 32))
    assert weight.shape == shape
    assert not getattr(weight.quant_state, "packing_format_for_cpu", False)
    assert all(torch.equal(value, before[key]) for key, value in built.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_the_quantised_values_are_drawn_with_the_models_width(name: str) -> None:
    import bitsandbytes as bnb

    torch.manual_seed(0)
    built = build_model(resolve_model(name), point("nf4"), device=CPU)
    widths = [
        float(bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float().std())
        for module in built.modules()
        if is_quantized(module)
    ]
    assert widths and all(width == pytest.approx(0.02, rel=0.1) for width in widths)


def test_nf4_is_doubly_quantised_in_the_compute_precision() -> None:
    built = build_model(resolve_model("tiny-llama"), point("nf4"), device=CPU)
    layer = built.model.layers[0].self_attn.q_proj
    assert layer.weight.dtype == torch.uint8
    # Two weights a byte.
    assert layer.weight.numel() == 256 * 256 // 2
    assert layer.weight.quant_state.quant_type == "nf4"
    assert layer.weight.quant_state.nested
    assert layer.weight.quant_state.dtype == torch.bfloat16
    assert layer.compute_dtype == torch.bfloat16


def test_int8_keeps_one_byte_a_weight() -> None:
    built = build_model(resolve_model("tiny-llama"), point("int8"), device=CPU)
    layer = built.model.layers[0].self_attn.q_proj
    assert layer.weight.dtype == torch.int8
    assert layer.weight.shape == (256, 256)


def test_the_settings_are_what_bitsandbytes_config_takes() -> None:
    from transformers import BitsAndBytesConfig

    four = BitsAndBytesConfig(
        **bitsandbytes_settings(Point(lora_rank=8, quantization="nf4", precision="fp16"))
    )
    assert four.load_in_4bit and four.bnb_4bit_use_double_quant and four.bnb_4bit_quant_type == "nf4"
    assert four.bnb_4bit_compute_dtype == torch.float16
    assert BitsAndBytesConfig(**bitsandbytes_settings(point("int8"))).load_in_8bit


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_loading_holds_no_more_than_the_model_and_one_layer(quantization: Quantization) -> None:
    # Deep enough that a model built whole in bf16 first would be seen: 10 layers of 1.4 MB.
    spec = resolve_model("tiny-llama")
    deep = spec.model_copy(update={"config": {**spec.config, "num_hidden_layers": 10}})
    one_layer = 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 704)
    with LiveBytes() as live:
        built = build_model(deep, Point(lora_rank=8, quantization=quantization), device=CPU)
    whole_in_bf16 = 10 * one_layer + 2 * 2 * 4096 * 256
    assert live.peak <= live.now + one_layer
    if quantization != "none":
        assert live.peak < 0.75 * whole_in_bf16
    assert built is not None


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_adapters_over_a_quantised_base_learn(name: str, quantization: Quantization) -> None:
    torch.manual_seed(0)
    built = build_model(resolve_model(name), point(quantization), device=CPU)
    adapted = add_adapters(built, point(quantization), None).train()
    tokens = torch.arange(64).reshape(2, 32)
    loss = adapted(input_ids=tokens, labels=tokens).loss
    assert torch.isfinite(loss)
    loss.backward()
    moved = [p.grad for n, p in adapted.named_parameters() if "lora_B" in n]
    assert moved and all(grad is not None and bool(grad.abs().sum() > 0) for grad in moved)
