"""Loaded by every Python process that has this folder on its path: reports what a DeepSpeed engine trains.

With `AUTOTUNE_SPY=FILE` set, the engine that `deepspeed.initialize` makes is described after its second
optimizer step, from the live objects, as JSON in that file. So a trainer is started as its user starts it,
and what it made of the exported files is read back. Needs nothing but torch, in whatever environment it is.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

STEPS = 2


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls `done` with the module of this name once it was imported."""

    def __init__(self, name: str, done: Any) -> None:
        self.name, self.done, self.real = name, done, None

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        # Asked also by those who only want to know whether the package is there.
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            self.real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return self.real.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        sys.meta_path.remove(self)
        module.__spec__.loader = self.real
        self.real.exec_module(module)
        self.done(module)


def watch(deepspeed: Any) -> None:
    """Wrap `deepspeed.initialize`."""
    # For CPU processes that talk to each other, of which there is one here; its compilation takes a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    import torch.distributed

    # axolotl asks for nccl whatever the device is.
    torch.distributed.is_nccl_available() or use_gloo(torch.distributed.distributed_c10d)
    initialize = deepspeed.initialize

    @functools.wraps(initialize)
    def watched(*args: Any, **kwargs: Any) -> Any:
        made = initialize(*args, **kwargs)
        watch_engine(made[0])
        return made

    deepspeed.initialize = watched


def allow_bf16(training_arguments: Any) -> None:
    """bf16 without a GPU is refused where `use_cpu` is not given, and axolotl has no key for it."""
    training_arguments.is_torch_bf16_gpu_available = lambda: True


def use_gloo(distributed: Any) -> None:
    """Where there is no nccl, a group that asks for it is one of gloo."""
    init = distributed.init_process_group

    @functools.wraps(init)
    def replaced(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        return init("gloo" if backend == "nccl" else backend, *args, **kwargs)

    distributed.init_process_group = replaced
    sys.modules["torch.distributed"].init_process_group = replaced


def watch_engine(engine: Any) -> None:
    """Describe the engine after its second optimizer step."""
    shapes: set[tuple[int, ...]] = set()
    losses: list[float] = []

    def seen(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        tokens = kwargs.get("input_ids", args[0] if args else None)
        if tokens is not None:
            shapes.add(tuple(tokens.shape))

    engine.module.register_forward_pre_hook(seen, with_kwargs=True)
    step, backward = engine.step, engine.backward

    def watched_backward(loss: Any, *args: Any, **kwargs: Any) -> Any:
        losses.append(float(loss.detach()))
        return backward(loss, *args, **kwargs)

    def watched_step(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        if engine.global_steps == STEPS:
            found = description(engine)
            found |= {"shapes": sorted(map(list, shapes)), "losses": losses}
            Path(os.environ["AUTOTUNE_SPY"]).write_text(json.dumps(found, indent=1))
        return result

    engine.step, engine.backward = watched_step, watched_backward


def description(engine: Any) -> dict[str, Any]:
    """What decides memory and arithmetic, read from the live engine."""
    module, zero = engine.module, engine.zero_optimization_stage()
    precision = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"
    optimizer_target, parameter_target = engine.zero_offload_optimizer(), engine.zero_offload_param()
    return {
        "micro_batch_size": engine.train_micro_batch_size_per_gpu(),
        "gradient_accumulation_steps": engine.gradient_accumulation_steps(),
        "gradient_clipping": engine.gradient_clipping(),
        "precision": precision,
        "zero_stage": zero,
        "offload": offload(optimizer_target, parameter_target),
        "reduce_bucket_size": engine.zero_reduce_bucket_size() if zero else None,
        "steps": engine.global_steps,
        **adapters(module),
        **quantization(module),
        **checkpointing(module),
        **optimizer(engine),
        "attention": module.config._attn_implementation,
        "trained_dtypes": dtypes(module, trained=True),
        "frozen_dtypes": dtypes(module, trained=False),
    }


def offload(optimizer_target: Any, parameter_target: Any) -> str:
    def device(target: Any) -> str:
        return "none" if target is None else str(getattr(target.device, "value", target.device))

    kinds = [device(optimizer_target), device(parameter_target)]
    names = ["optimizer" if kinds[0] != "none" else "", "parameters" if kinds[1] != "none" else ""]
    words = "+".join(name for name in names if name) or "none"
    return ("nvme_" if "nvme" in kinds else "") + words


def adapters(module: Any) -> dict[str, Any]:
    layers = {name: part for name, part in module.named_modules() if hasattr(part, "lora_A") and part.lora_A}
    if not layers:
        return {"lora_rank": 0, "lora_alpha": 0, "lora_targets": [], "lora_dropout": 0.0}
    ranks = {rank for part in layers.values() for rank in part.r.values()}
    alphas = {alpha for part in layers.values() for alpha in part.lora_alpha.values()}
    rates = {getattr(drop, "p", 0.0) for part in layers.values() for drop in part.lora_dropout.values()}
    assert len(ranks) == len(alphas) == len(rates) == 1, (ranks, alphas, rates)
    return {
        "lora_rank": ranks.pop(),
        "lora_alpha": alphas.pop(),
        "lora_targets": sorted({name.rpartition(".")[2] for name in layers}),
        "lora_dropout": rates.pop(),
    }


def quantization(module: Any) -> dict[str, Any]:
    # peft's own layers bear the same names.
    own = [part for part in module.modules() if type(part).__module__.startswith("bitsandbytes")]
    kinds = [part for part in own if type(part).__name__ in ("Linear4bit", "Linear8bitLt")]
    if not kinds:
        return {"quantization": "none"}
    if type(kinds[0]).__name__ == "Linear8bitLt":
        return {"quantization": "int8"}
    state = kinds[0].weight.quant_state
    double = "double" if state.nested else "single"
    return {
        "quantization": f"{state.quant_type} {double}",
        "compute_dtype": str(kinds[0].compute_dtype).removeprefix("torch."),
    }


def checkpointing(module: Any) -> dict[str, Any]:
    names = [kind.__name__ for part in module.modules() for kind in type(part).__mro__]
    assert "GradientCheckpointingLayer" in names, "no layer of transformers"
    layers = [
        part
        for part in module.modules()
        if any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(part).__mro__)
    ]
    on = [part for part in layers if part.gradient_checkpointing]
    found: dict[str, Any] = {"checkpoint_fraction": len(on) / len(layers)}
    if on:
        found["use_reentrant"] = reentrancy(on[0]._gradient_checkpointing_func)
    return found


def reentrancy(function: Any) -> Any:
    while function is not None:
        if isinstance(function, functools.partial):
            return function.keywords.get("use_reentrant")
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        partials = [cell for cell in cells if isinstance(cell, functools.partial)]
        function = partials[0] if partials else getattr(function, "__wrapped__", None)
    return None


def optimizer(engine: Any) -> dict[str, Any]:
    basic = engine.basic_optimizer
    states = [
        value for state in basic.state.values() for value in state.values() if getattr(value, "ndim", 0)
    ]
    # Small tensors keep 32-bit state in bitsandbytes.
    largest = max(states, key=lambda value: value.numel(), default=None)
    eight = largest is not None and str(largest.dtype) == "torch.uint8"
    paged = bool(getattr(basic, "is_paged", False))
    name = type(basic).__name__
    return {
        "optimizer_class": name,
        "optimizer": ("paged_" if paged and eight else "") + ("adamw8bit" if eight else "adamw"),
        "state_dtypes": sorted({str(value.dtype).removeprefix("torch.") for value in states}),
    }


def dtypes(module: Any, *, trained: bool) -> list[str]:
    found = {
        str(parameter.dtype).removeprefix("torch.")
        for parameter in module.parameters()
        if parameter.requires_grad == trained
    }
    return sorted(found)


if os.environ.get("AUTOTUNE_SPY"):
    sys.meta_path.insert(0, AfterImport("deepspeed", watch))
    sys.meta_path.insert(0, AfterImport("transformers.training_args", allow_bf16))
