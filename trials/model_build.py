"""Builds a model straight on its device in its final precision, one module at a time.

The modules are created without storage, swapped for quantised ones where asked, and then filled one by
one, so that loading never holds more than the (quantised) model and one module. With parameter offload
each module is handed to DeepSpeed as soon as it is filled, so that the model is never whole on the GPU.

Checked with transformers 5.17.0, accelerate 1.15.0, deepspeed 0.19.8.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trials import quantize
from trials.wire import ModelSpec, Point, Precision

DTYPES: dict[Precision, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}

# What transformers raises over a value of a configuration that it uses unchecked, such as no heads or an
# activation that it does not know.
_WRONG_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

ModuleSink = Callable[[nn.Module], None]


class InvalidPoint(Exception):
    """The model cannot be trained in this way; the message is for the user."""


def transformers_config(model: ModelSpec) -> Any:
    """The transformers configuration object of a model, never running remote code.

    Raises:
        InvalidPoint: the installed transformers does not know the model type, or refuses the values.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING

    values = copy.deepcopy(model.config)
    model_type = values.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        import transformers

        raise InvalidPoint(
            f"transformers {transformers.__version__} does not know the model type {model_type!r}"
        )
    # A checkpoint that is stored quantised would be built quantised; the point alone decides that here.
    values.pop("quantization_config", None)
    try:
        config = CONFIG_MAPPING[model_type].from_dict(values)
    except (StrictDataclassError, *_WRONG_VALUES) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidPoint(f"the model's configuration is refused: {reason}") from error
    return config.get_text_config() if hasattr(config, "text_config") else config


def empty_model(model: ModelSpec, point: Point) -> Any:
    """The model with parameters on `meta` and real buffers, in the point's precision and attention.

    Raises:
        InvalidPoint: the model has no causal language model, or refuses the attention.
    """
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    config = transformers_config(model)
    config.use_cache = False
    try:
        with init_empty_weights(include_buffers=False):
            built = AutoModelForCausalLM.from_config(
                config,
                dtype=DTYPES[point.precision],
                attn_implementation=point.attention,
                trust_remote_code=False,
            )
    except (ValueError, ImportError) as error:
        text = " ".join(str(error).split())
        if "does not support" in text and "attention" in text:
            text = f"{model.name} does not support {point.attention} attention: set attention: [eager]"
        raise InvalidPoint(text) from error
    except _WRONG_VALUES as error:
        text = " ".join(str(error).split())
        reason = f"it knows no {text}" if isinstance(error, KeyError) else text
        raise InvalidPoint(f"transformers cannot build the model from its configuration: {reason}") from error
    # init_empty_weights registers every parameter anew, which unties what the constructor had tied.
    built.tie_weights()
    return built


def build_model(
    model: ModelSpec,
    point: Point,
    *,
    device: torch.device,
    sink: ModuleSink | None = None,
) -> Any:
    """The model of a point on its device, without adapters.

    Args:
        model: what to build; its weights are read where `model.weights` is set, else initialised randomly.
        point: precision, attention and quantization are taken from it.
        device: where the parameters live.
        sink: called with each module as soon as its own parameters are filled (DeepSpeed's partitioning).

    Raises:
        InvalidPoint: see `empty_model`; also kernels that do not know this model.
    """
    if model.weights is not None:
        built = _load_model(model, point, device)
        if sink is not None:
            for module in built.modules():
                sink(module)
    else:
        built = empty_model(model, point)
        if point.quantization != "none":
            quantize.swap_linears(built, point)
        # Tied parameters are one storage: fill the model through one table of what was already filled.
        _fill(built, built, device, {}, sink)
        for name, buffer in list(built.named_buffers()):
            _set_buffer(built, name, buffer.to(device))
    if point.quantization == "nf4":
        quantize.keep_layout(built)
    if point.liger_kernel:
        apply_liger(built)
    return built


def _load_model(model: ModelSpec, point: Point, device: torch.device) -> Any:
    from transformers import AutoModelForCausalLM

    extra: dict[str, Any] = {}
    if point.quantization != "none":
        extra["quantization_config"] = quantize.bitsandbytes_config(point)
    loaded = AutoModelForCausalLM.from_pretrained(
        model.weights,
        dtype=DTYPES[point.precision],
        attn_implementation=point.attention,
        device_map={"": device},
        trust_remote_code=False,
        **extra,
    )
    loaded.config.use_cache = False
    return loaded


def _fill(
    module: nn.Module,
    owner: Any,
    device: torch.device,
    filled: dict[int, tuple[nn.Parameter, nn.Parameter]],
    sink: ModuleSink | None,
) -> None:
    """Depth first, as transformers initialises: each module by its nearest enclosing PreTrainedModel.

    `filled` maps the identity of an empty parameter to itself and its filled one: itself, so that the
    identity is not given to another object meanwhile.
    """
    from transformers import PreTrainedModel

    for child in module.children():
        _fill(child, child if isinstance(child, PreTrainedModel) else owner, device, filled, sink)
    with torch.no_grad():
        quantized = quantize.is_quantized(module)
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.device.type != "meta":
                continue
            if id(parameter) in filled:
                module.register_parameter(name, filled[id(parameter)][1])
                continue
            new = _filled_parameter(module, name, parameter, device, quantized)
            module.register_parameter(name, new)
            filled[id(parameter)] = (parameter, new)
        if not quantized:
            owner._init_weights(module)
    if sink is not None:
        sink(module)


def _filled_parameter(
    module: nn.Module, name: str, parameter: nn.Parameter, device: torch.device, quantized: bool
) -> nn.Parameter:
    dtype = parameter.dtype
    if quantized and name == "weight":
        # The quantised module's empty weight has the shape to quantise; its dtype is the compute precision.
        data = torch.empty(parameter.shape, dtype=dtype, device=device).normal_(0.0, 0.02)
        filled = quantize.quantized_parameter(module, parameter, data)
        # A parent that initialises its children's weights (GPT-2) must leave a quantised one alone.
        filled._is_hf_initialized = True  # type: ignore[attr-defined]
        return filled
    data = torch.empty(parameter.shape, dtype=dtype, device=device)
    # What _init_weights does not know (a bare parameter in a module of its own) must not stay uninitialised.
    data.normal_(0.0, 0.02)
    return nn.Parameter(data, requires_grad=parameter.requires_grad)


def _set_buffer(model: nn.Module, name: str, value: torch.Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    module = model.get_submodule(path)
    module._buffers[leaf] = value


def apply_liger(model: Any) -> None:
    """Put liger-kernel's fused loss and kernels into a built model.

    Raises:
        InvalidPoint: it has none for this architecture.
    """
    from liger_kernel.transformers.monkey_patch import (
        MODEL_TYPE_TO_APPLY_LIGER_FN,
        _apply_liger_kernel_to_instance,
    )

    model_type = model.config.model_type
    if model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise InvalidPoint(f"liger-kernel has no kernels for {model_type}: set liger_kernel: [false]")
    _apply_liger_kernel_to_instance(model=model)
