"""NF4 and int8 bases through bitsandbytes, one layer at a time.

Which linear layers are quantised is transformers' own rule (all but the output head and what the model
names), so that a checkpoint loaded with `BitsAndBytesConfig` and a model built here are the same.

Checked with bitsandbytes 0.50.2 and transformers 5.17.0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trials.wire import Point


def bitsandbytes_settings(point: Point) -> dict[str, Any]:
    """Plain keyword arguments of `transformers.BitsAndBytesConfig` for a point's quantization."""
    if point.quantization == "int8":
        return {"load_in_8bit": True}
    compute = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[point.precision]
    return {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": compute,
    }


def bitsandbytes_config(point: Point) -> Any:
    """The `BitsAndBytesConfig` of a point that is quantised."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(**bitsandbytes_settings(point))


def swap_linears(model: Any, point: Point) -> None:
    """Replace the linear layers of a model without storage by quantised ones, in place."""
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    config = bitsandbytes_config(point)
    keep = [*get_keys_to_not_convert(model), *(getattr(model, "_keep_in_fp32_modules", None) or ())]
    dtypes = {
        name: module.weight.dtype
        for name, module in model.named_modules()
        if hasattr(module, "weight") and isinstance(module.weight, torch.Tensor)
    }
    replace_with_bnb_linear(model, modules_to_not_convert=keep, quantization_config=config)
    for name, module in model.named_modules():
        if is_quantized(module):
            # The replacement was created in the default precision; the point's compute precision is what is
            # quantised.
            module.weight.data = module.weight.data.to(dtypes[name])
            if module.bias is not None:
                module.bias.data = module.bias.data.to(dtypes[name])
    # Loading marks a quantised model so; peft and the trainers look for it.
    model.is_quantized = True
    if point.quantization == "int8":
        model.is_loaded_in_8bit = True
    else:
        model.is_loaded_in_4bit = True


def quantize_loaded(model: Any, point: Point) -> None:
    """Quantise a model that has its weights, on the device where each of them is, one layer at a time.

    Each layer's own weights are let go of as soon as it is quantised.

    Args:
        model: in the point's precision.
        point: how.
    """
    before = dict(model.named_modules())
    swap_linears(model, point)
    for name, module in model.named_modules():
        if not is_quantized(module):
            continue
        old: Any = before.pop(name)
        weight = old.weight.data
        # GPT-2's Conv1D keeps its weight the other way round.
        data = weight.T.contiguous() if type(old).__name__ == "Conv1D" else weight
        module.weight = quantized_parameter(module, module.weight, data)
        if old.bias is not None:
            module.bias = nn.Parameter(old.bias.data, requires_grad=False)
        module.train(old.training)
        old.weight = None


def keep_layout(model: nn.Module) -> None:
    """Keep bitsandbytes from packing 4-bit weights anew for the CPU's own instructions in an evaluation pass.

    Neither ZeRO-3's partitions nor the saving of a checkpoint survive it, and a GPU has no such layout.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def is_quantized(module: nn.Module) -> bool:
    """Whether a module is one of bitsandbytes' quantised linear layers."""
    return type(module).__name__ in ("Linear4bit", "Linear8bitLt")


def quantized_parameter(module: Any, empty: Any, data: torch.Tensor) -> nn.Parameter:
    """The quantised weight of one layer from its values, shape [out, in], on the device."""
    import bitsandbytes as bnb

    # The empty parameter carries the layer's settings as attributes: block size, type, storage.
    settings = dict(empty.__dict__)
    if type(module).__name__ == "Linear4bit":
        parameter: nn.Parameter = bnb.nn.Params4bit(data, requires_grad=False, **settings).to(data.device)
        return parameter
    settings.pop("SCB", None)
    # Int8Params quantises when it is moved to a device; from the host, as transformers does it.
    parameter = bnb.nn.Int8Params(data.to("cpu"), requires_grad=False, **settings).to(data.device)
    return parameter
