"""Library functions that take long and allocate nothing, in a form that takes less; for the time of a trace.

What is recorded stays the same: each gives the answer of the function in whose place it stands.

Checked with torch 2.13.0, deepspeed 0.19.8.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
from bisect import bisect_left
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from trials.tracing.recorder import Recorder


def quicker(recorder: Recorder) -> dict[tuple[Any, str], Any]:
    """The functions, by owner and name."""
    from deepspeed import comm
    from deepspeed.runtime.zero import partitioned_param_coordinator as coordinator
    from torch._library import simple_registry
    from torch.autograd import function

    def broadcast(tensor: torch.Tensor, *_: Any, **__: Any) -> None:
        # What rank 0 sends it has.
        recorder.see(tensor)

    values: dict[tuple[Any, str], Any] = {
        (nn.Module, "named_modules"): named_modules,
        (comm, "broadcast"): broadcast,
        # `Function.apply` asks for the signature of the same few functions each time.
        (function, "inspect"): SimpleNamespace(signature=functools.cache(inspect.signature)),
        # No operator has a rule of its own for our mode.
        (simple_registry, "find_torch_dispatch_rule"): lambda *_: None,
        (
            coordinator.PartitionedParameterCoordinator,
            "_PartitionedParameterCoordinator__params_to_release",
        ): functools.cache(params_to_release),
    }
    if importlib.util.find_spec("cpuinfo") is not None:
        import cpuinfo  # type: ignore[import-untyped]

        # It starts processes to measure the clock; DeepSpeed's CPU Adam only warns of one vendor.
        values[(cpuinfo, "get_cpu_info")] = dict
    return values


def unhooked() -> dict[tuple[Any, str], Any]:
    """For a model whose inner modules never run: ZeRO-3 hooks the outermost one only."""
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

    register = DeepSpeedZeRoOffload._register_deepspeed_module
    # DeepSpeed's own numbers go on from one engine of a process to the next.
    numbers = itertools.count(1)

    def register_outermost(self: Any, module: nn.Module, count: list[int] | None = None) -> None:
        if module is self.module:
            register(self, module)
            return
        for inner in module.modules():
            inner.ds_id = next(numbers)
            inner.ds_recompute_parameters = set()
            if inner.__dict__.get("_z3_leaf", False):
                for parameter in inner.parameters():
                    parameter.ds_z3_leaf_module = inner

    return {(DeepSpeedZeRoOffload, "_register_deepspeed_module"): register_outermost}


def named_modules(
    self: nn.Module, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
) -> Iterator[tuple[str, nn.Module]]:
    """`torch.nn.Module.named_modules` without a generator for each level of the tree."""
    seen: set[nn.Module] = set() if memo is None else memo
    waiting = [(prefix, self)]
    while waiting:
        name, module = waiting.pop()
        if module is not self and type(module).named_modules is not named_modules:
            # It answers for itself.
            yield from module.named_modules(seen, name, remove_duplicate)
            continue
        if module in seen:
            continue
        if remove_duplicate:
            seen.add(module)
        yield name, module
        before = f"{name}." if name else ""
        waiting += [
            (before + child, inner) for child, inner in reversed(module._modules.items()) if inner is not None
        ]


def params_to_release(self: Any, submodule: nn.Module, step_id: int) -> set[int]:
    """Which parameters ZeRO-3 gives back after a module, as `__params_to_release` answers.

    DeepSpeed goes through the modules that follow, most of which have no parameters, for each one it leaves;
    here the parameters that follow are listed once. Its answers are remembered, as these are to be.
    """
    name = "_PartitionedParameterCoordinator"
    order = getattr(self, f"{name}__submodule_order")
    # A leaf's parameters are its inner modules' too, and then those of all modules that follow.
    whole = bool(submodule.__dict__.get("_z3_leaf", False))
    kept = self.__dict__.setdefault("_autotune_following", {})
    if kept.get("order") is not order:
        kept.clear()
        kept["order"] = order
    if whole not in kept:
        kept[whole] = _following(order, whole)
    steps, owners, elements = kept[whole]
    fetched = getattr(self, f"{name}__most_recent_step_id_param_fetched_for")
    released = {
        parameter.ds_id
        for parameter in _parameters(submodule, whole)
        if not parameter.ds_persist and fetched[parameter] <= step_id
    }
    most = getattr(self, f"{name}__max_reuse_dist_in_numel")
    passed = 0
    for index in range(bisect_left(steps, step_id), len(steps)):
        if passed >= most or not released:
            break
        released.difference_update(owners[index])
        passed += elements[index]
    return released


def _following(order: Any, whole: bool) -> tuple[list[int], list[list[int]], list[int]]:
    """Of the modules with parameters: where they stand in the order, their parameters, and the elements."""
    found = [
        (step, parameters)
        for step, module in enumerate(order)
        if (parameters := list(_parameters(module, whole)))
    ]
    return (
        [step for step, _ in found],
        [[parameter.ds_id for parameter in parameters] for _, parameters in found],
        [sum(parameter.ds_numel for parameter in parameters) for _, parameters in found],
    )


def _parameters(module: nn.Module, whole: bool) -> Iterator[Any]:
    """As DeepSpeed's `iter_params`."""
    from deepspeed.runtime.zero import partitioned_param_coordinator as coordinator

    return iter(coordinator.iter_params(module, recurse=whole))
