"""Says what an allocation is for, in words a person who trains models uses.

In the forward pass the module that is running says it, in DeepSpeed's code the file, in the backward pass
the size; what turns out to be a gradient, a master weight or optimizer state is relabelled where it comes
to rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from trials.tracing.recorder import Recorder

WEIGHTS = "weights"
QUANTIZED = "quantized base"
ADAPTERS = "adapters"
GRADIENTS = "gradients"
OPTIMIZER_STATE = "optimizer state"
MASTER = "fp32 master weights"
BUCKETS = "DeepSpeed buffers"
LOGITS = "logits and loss"
ATTENTION = "activations: attention"
MLP = "activations: MLP"
NORMS = "activations: norms"
RESIDUALS = "activations: other"
BACKWARD = "activations: in backward"
INPUTS = "batch"

_DEPTH = 14


def kind_of(module: nn.Module) -> str | None:
    """The activations a module makes; None where its parent says it."""
    name = type(module).__name__.lower()
    if "norm" in name:
        return NORMS
    if "attention" in name or "attn" in name:
        return ATTENTION
    if "mlp" in name or "moe" in name or "experts" in name or "feedforward" in name:
        return MLP
    if "decoderlayer" in name or name.endswith(("block", "layer")) or name.endswith("model"):
        return RESIDUALS
    return None


class Labeller:
    """Follows the running modules and answers for every allocation."""

    def __init__(self, recorder: Recorder, vocabulary: int) -> None:
        self._recorder = recorder
        self._vocabulary = vocabulary
        self._stack: list[str] = []
        self._kinds: dict[type[nn.Module], str | None] = {}
        self._logits_bytes: set[int] = set()
        self._logits = recorder.category_index(LOGITS)
        self._buckets = recorder.category_index(BUCKETS)
        self._backward = recorder.category_index(BACKWARD)
        self.stage = "setup"

    def expect_logits(self, tokens: int) -> None:
        """How many tokens a micro batch has: storages of tokens x vocabulary are logits."""
        elements = tokens * self._vocabulary
        self._logits_bytes = {elements, 2 * elements, 4 * elements}

    def __call__(self, size_bytes: int) -> int:
        """The category of an allocation that happens now."""
        recorder = self._recorder
        if self.stage != "micro":
            return recorder.category
        if _in_deepspeed():
            return self._buckets
        if size_bytes in self._logits_bytes:
            return self._logits
        if self._stack:
            return recorder.category_index(self._stack[-1])
        return self._backward if recorder.in_backward else recorder.category

    @contextmanager
    def following(self) -> Iterator[None]:
        """While inside, every module's forward is followed."""

        def enter(module: nn.Module, _: Any) -> None:
            kind = self._kinds.get(type(module), "")
            if kind == "":
                kind = self._kinds[type(module)] = kind_of(module)
            stack = self._stack
            stack.append(kind if kind is not None else stack[-1] if stack else LOGITS)

        def leave(module: nn.Module, _: Any, __: Any) -> None:
            if self._stack:
                self._stack.pop()

        before = module_hooks.register_module_forward_pre_hook(enter)
        after = module_hooks.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()


def _in_deepspeed() -> bool:
    frame: Any = sys._getframe(3)
    for _ in range(_DEPTH):
        if frame is None:
            return False
        path = frame.f_code.co_filename
        if "deepspeed" in path:
            return "zero/linear" not in path
        if "transformers" in path or "autograd/graph" in path or "peft" in path:
            return False
        frame = frame.f_back
    return False


def relabel_model(recorder: Recorder, model: nn.Module) -> None:
    """Name the parameters' storages."""
    for name, parameter in model.named_parameters():
        label = WEIGHTS
        if "lora_" in name:
            label = ADAPTERS
        elif type(parameter).__name__ in ("Params4bit", "Int8Params"):
            label = QUANTIZED
            state = getattr(parameter, "quant_state", None)
            for extra in _quant_tensors(state):
                recorder.relabel(extra, QUANTIZED)
            scales = getattr(parameter, "SCB", None)
            if scales is not None:
                recorder.relabel(scales, QUANTIZED)
        recorder.relabel(parameter.data, label)
        partition = getattr(parameter, "ds_tensor", None)
        if partition is not None:
            recorder.relabel(partition, label)
    for buffer in model.buffers():
        recorder.relabel(buffer, WEIGHTS)


def _quant_tensors(state: Any) -> Iterator[torch.Tensor]:
    while state is not None:
        for name in ("absmax", "offset", "code"):
            value = getattr(state, name, None)
            if isinstance(value, torch.Tensor):
                yield value
        state = getattr(state, "state2", None)


def relabel_engine(recorder: Recorder, engine: Any) -> None:
    """Name what DeepSpeed's optimizer holds now: master weights, states, gradients and buckets."""
    optimizer = engine.optimizer
    for name in (
        "fp32_groups_flat",
        "fp32_groups",
        "single_partition_of_fp32_groups",
        "fp32_partitioned_groups_flat",
    ):
        for tensor in _flatten(getattr(optimizer, name, None)):
            recorder.relabel(tensor, MASTER)
            if tensor.grad is not None:
                recorder.relabel(tensor.grad, GRADIENTS)
    inner = getattr(optimizer, "optimizer", optimizer)
    for state in getattr(inner, "state", {}).values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                recorder.relabel(value, OPTIMIZER_STATE)
    for name in ("averaged_gradients", "all_grad_tensors"):
        for tensor in _flatten(getattr(optimizer, name, None)):
            recorder.relabel(tensor, GRADIENTS)
    flat = getattr(optimizer, "grad_partitions_flat_buffer", None)
    if isinstance(flat, torch.Tensor):
        recorder.relabel(flat, GRADIENTS)
    buckets = getattr(optimizer, "ipg_buckets", None)
    if isinstance(buckets, dict):
        for bucket in buckets.values():
            for tensor in _flatten(getattr(bucket, "buffer", None)):
                recorder.relabel(tensor, BUCKETS)


def relabel_gradients(recorder: Recorder, parameters: Any) -> None:
    """Name the gradients that the backward pass left in the parameters."""
    for parameter in parameters:
        if parameter.grad is not None:
            recorder.relabel(parameter.grad, GRADIENTS)


def _flatten(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flatten(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flatten(item)
