"""bitsandbytes on `meta` tensors: the allocations of its CUDA backend, performed from its source.

Checked with bitsandbytes 0.50.2.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trials.tracing.host_memory import host_tensor
from trials.tracing.recorder import MANAGED_STREAM, Handler, Recorder
from trials.tracing.replacing import replaced


@functools.cache
def custom_kernel_rule(
    multiprocessors: int, capability: tuple[int, int]
) -> Callable[[Any, int, int, int], bool]:
    """bitsandbytes' own choice between its fused 4-bit kernel and dequantising, as rule(dtype, M, N, K).

    Its module cannot be imported where there is no CUDA, so the function is taken out of the installed
    source.
    """
    spec = importlib.util.find_spec("bitsandbytes")
    assert spec is not None and spec.origin is not None
    source = (Path(spec.origin).parent / "backends" / "cuda" / "ops.py").read_text()
    wanted = {"_gemm_4bit_use_custom_cuda", "_GEMM_4BIT_CUSTOM_FLOOR_M"}
    body: list[ast.stmt] = [
        node
        for node in ast.parse(source).body
        if (isinstance(node, ast.FunctionDef) and node.name in wanted)
        or (isinstance(node, ast.Assign) and any(getattr(t, "id", "") in wanted for t in node.targets))
    ]
    space: dict[str, Any] = {
        "torch": torch,
        "functools": functools,
        "_gpu_dispatch_props": lambda _: (multiprocessors, *capability),
    }
    exec(compile(ast.Module(body, []), "bitsandbytes", "exec"), space)
    function = space["_gemm_4bit_use_custom_cuda"]

    def rule(dtype: Any, rows: int, columns: int, depth: int) -> bool:
        # The dispatcher's own bound, before the rule is asked.
        return rows <= 1536 and bool(function(0, dtype, rows, columns, depth))

    return rule


def make_handlers(multiprocessors: int, capability: tuple[int, int]) -> dict[Any, Handler]:
    """Handlers for bitsandbytes' operators; empty where it is not installed."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return {}
    import bitsandbytes  # noqa: F401

    ops = torch.ops.bitsandbytes
    custom = custom_kernel_rule(multiprocessors, capability)

    def gemm_4bit(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
        return _gemm_4bit(recorder, custom, *args, **kwargs)

    return {
        ops.gemm_4bit.default: gemm_4bit,
        ops.int8_vectorwise_quant.default: _int8_quant,
        ops.int8_mixed_scaled_mm.default: _int8_mixed,
        ops.int8_scaled_mm.default: _int8_scaled,
    }


def _gemm_4bit(
    recorder: Recorder,
    custom: Callable[[Any, int, int, int], bool],
    inputs: torch.Tensor,
    weight: torch.Tensor,
    shape: Any,
    absmax: torch.Tensor,
    blocksize: int,
    quant_type: str,
    bias: torch.Tensor | None = None,
    absmax_8bit: torch.Tensor | None = None,
    absmax_code: torch.Tensor | None = None,
    absmax_offset: torch.Tensor | None = None,
) -> torch.Tensor:
    depth = inputs.shape[-1]
    rows, columns = inputs.numel() // depth, shape[0]
    with recorder.recording():
        if depth % blocksize == 0 and custom(inputs.dtype, rows, columns, depth):
            inputs = inputs.contiguous()
            return torch.empty((*inputs.shape[:-1], columns), dtype=inputs.dtype, device="meta")
        scales = offset_scales = None
        if absmax_8bit is not None:
            scales = torch.empty_like(absmax_8bit, dtype=torch.float32)
            offset_scales = scales + absmax_offset
        dequantised = torch.empty(tuple(shape), dtype=inputs.dtype, device="meta")
        out = torch.nn.functional.linear(inputs, dequantised, bias)
        # Both live until the product is done.
        del scales, offset_scales
        return out


def _int8_quant(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    values = args[0]
    threshold = args[1] if len(args) > 1 else kwargs.get("threshold", 0.0)
    with recorder.recording():
        stats = torch.empty(values.numel() // values.shape[-1], dtype=torch.float32, device="meta")
        rows = torch.empty(values.shape, dtype=torch.int8, device="meta")
        outliers = None
        if threshold > 0.0:
            # A randomly initialised model has no outliers beyond the threshold.
            found = values.abs() >= threshold
            found.any()
            outliers = torch.empty(0, dtype=torch.int64, device="meta")
            del found
        return rows, stats, outliers


def _int8_mixed(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    names = ("A", "CA", "CB", "SCA", "SCB", "outlier_cols", "bias")
    given = dict(zip(names, args, strict=False)) | kwargs
    with recorder.recording():
        empty = torch.empty(0, dtype=given["A"].dtype, device="meta")
        out = _scaled(given["CA"], given["CB"], given.get("bias"), given["A"].dtype)
        return out, empty


def _int8_scaled(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    bias = args[4] if len(args) > 4 else kwargs.get("bias")
    dtype = args[5] if len(args) > 5 else kwargs.get("dtype")
    with recorder.recording():
        return _scaled(args[0], args[1], bias, dtype or torch.float16)


def _scaled(inputs: torch.Tensor, weight: torch.Tensor, bias: Any, dtype: torch.dtype) -> torch.Tensor:
    whole = torch.empty((*inputs.shape[:-1], weight.shape[0]), dtype=torch.int32, device="meta")
    half = torch.empty_like(whole, dtype=torch.float16)
    out = half.to(dtype)
    return out


@contextmanager
def performed(recorder: Recorder) -> Iterator[None]:
    """bitsandbytes without its CUDA library, for the time of a trace."""
    if importlib.util.find_spec("bitsandbytes") is None:
        yield
        return
    import bitsandbytes as bnb
    from bitsandbytes import functional

    from trials import quantize

    def quantized_parameter(module: Any, empty: Any, data: torch.Tensor) -> Any:
        settings = dict(empty.__dict__)
        with recorder.labelled("quantized base"):
            if type(module).__name__ == "Linear4bit":
                # `to` quantises on every device but meta, which stands for the GPU here.
                return bnb.nn.Params4bit(data, requires_grad=False, **settings)._quantize(data.device)
            # As Int8Params moves and quantises what it is given on the host.
            half = data.to("cpu").to(device=data.device, dtype=torch.float16)
            values, scales, _ = functional.int8_vectorwise_quant(half)
            for name in ("CB", "SCB"):
                settings.pop(name, None)
            return bnb.nn.Int8Params(values, requires_grad=False, **settings, CB=values, SCB=scales)

    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
        out = host_tensor(shape, dtype)
        recorder.place(out, MANAGED_STREAM)
        out.is_paged = True
        return out

    values = {
        (quantize, "quantized_parameter"): quantized_parameter,
        (functional, "is_on_gpu"): lambda *_, **__: True,
        (functional, "get_paged"): get_paged,
        (functional, "prefetch_tensor"): lambda *_, **__: None,
        (functional, "fill"): lambda *_, **__: None,
        (torch.cuda, "synchronize"): lambda *_, **__: None,
    }
    functional.name2qmap.clear()
    try:
        with replaced(values):
            yield
    finally:
        functional.name2qmap.clear()


@contextmanager
def loaded_whole() -> Iterator[None]:
    """Inside, a quantised model is first built whole and then quantised layer by layer."""
    from trials import quantize, trial

    build = vars(trial)["build_model"]

    def build_whole(model: Any, point: Any, **kwargs: Any) -> Any:
        if point.quantization == "none":
            return build(model, point, **kwargs)
        built = build(model, point.model_copy(update={"quantization": "none", "lora_rank": 0}), **kwargs)
        # The swap makes new modules; those it replaces keep their weights until their own turn.
        dense = {
            name: module for name, module in built.named_modules() if isinstance(module, torch.nn.Linear)
        }
        quantize.swap_linears(built, point)
        for name, module in built.named_modules():
            if quantize.is_quantized(module):
                old = dense.pop(name)
                copy = old.weight.data.clone()
                module.weight = quantize.quantized_parameter(module, module.weight, copy)
                module.bias = old.bias
                del old, copy
        return built

    # The name is imported there, not exported.
    setattr(trial, "build_model", build_whole)  # noqa: B010
    try:
        yield
    finally:
        setattr(trial, "build_model", build)  # noqa: B010
