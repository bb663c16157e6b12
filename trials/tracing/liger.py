"""liger-kernel on `meta` tensors: its own Python runs and allocates, its Triton kernels do nothing.

Where it asks whether a tensor is on a GPU, its functions are compiled again with `meta` in the place of
`cuda`.

Checked with liger-kernel 0.8.5.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from trials.tracing.replacing import replaced

_DEVICE_TEST = re.compile(r"""device\.type (==|!=) (["'])cuda\2""")


@contextmanager
def performed(capability: tuple[int, int], multiprocessors: int, *, used: bool) -> Iterator[None]:
    """liger-kernel without a GPU, for the time of a trace.

    Args:
        capability: the GPU's compute capability.
        multiprocessors: its streaming multiprocessors; the norms' gradients are summed in as many parts.
        used: whether the trial uses liger-kernel; if not, nothing is imported or replaced.
    """
    if not used or importlib.util.find_spec("liger_kernel") is None:
        yield
        return
    from triton.runtime import autotuner, jit  # type: ignore[import-untyped]

    values: dict[tuple[Any, str], Any] = {
        (jit.JITFunction, "run"): _no_kernel,
        (autotuner.Autotuner, "run"): _no_kernel,
        (torch.cuda, "get_device_capability"): lambda *_: capability,
        (torch.cuda, "get_device_properties"): lambda *_: SimpleNamespace(
            multi_processor_count=multiprocessors, major=capability[0], minor=capability[1]
        ),
    }
    for module in _modules():
        for name, function in list(vars(module).items()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                on_meta = _on_meta(module, function)
                if on_meta is not None:
                    values[(module, name)] = on_meta
    with replaced(values):
        yield


def _no_kernel(*_: Any, **__: Any) -> None:
    return None


def _modules() -> Iterator[ModuleType]:
    import liger_kernel.ops

    for entry in pkgutil.iter_modules(liger_kernel.ops.__path__):
        if not entry.ispkg:
            name = f"liger_kernel.ops.{entry.name}"
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                continue
            source = spec.loader.get_source(name)  # type: ignore[attr-defined]
            if source and _DEVICE_TEST.search(source):
                yield importlib.import_module(name)


def _on_meta(module: ModuleType, function: FunctionType) -> FunctionType | None:
    source = textwrap.dedent(inspect.getsource(function))
    changed, count = _DEVICE_TEST.subn(r'device.type \1 "meta"', source)
    if not count:
        return None
    space: dict[str, Any] = {}
    # Its globals stay the module's, so that it calls what the module calls.
    exec(compile(changed, str(module.__file__), "exec"), vars(module) | space, space)
    made: FunctionType = space[function.__name__]
    return FunctionType(made.__code__, function.__globals__, function.__name__, function.__defaults__)
