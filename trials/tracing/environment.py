"""Everything that is replaced for the time of a trace, and put back afterwards.

Checked with torch 2.13.0, transformers 5.17.0, deepspeed 0.19.8.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

from trials.tracing import kernels, liger, quantized, shortcuts
from trials.tracing.accelerator import install
from trials.tracing.attention import GpuKernels, attention_for
from trials.tracing.quicker import quicker
from trials.tracing.recorder import Recorder, RecordingMode
from trials.tracing.replacing import replaced

# What DeepSpeed only loads when an engine starts; it would be loaded anew in every fork.
STARTED_WITH_AN_ENGINE = (
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.superoffload.superoffload_stage3",
    "deepspeed.module_inject.auto_ep_layer",
)
# Enough for DeepSpeed to flatten on the device, as it does wherever a configuration fits at all.
TOLD_DEVICE_BYTES = 1 << 50


def start_process(processes: int) -> None:
    """Make this process one of `processes` that only pretend to talk; once, before DeepSpeed."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # Not installed, as far as this process goes: transformers' generation would load the one, its losses for
    # object detection the other.
    for name in ("sklearn", "scipy"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    os.environ.update(
        DS_ACCELERATOR="cuda",
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE=str(processes),
        LOCAL_WORLD_SIZE=str(processes),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
    )
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    import logging

    import deepspeed
    import transformers
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # The imports' own objects need no looking at again.
    gc.freeze()
    assert deepspeed is not None


def preload(model_type: str, point: dict[str, Any]) -> None:
    """Import what tracing this point needs, so that forks share it; what is missing is told by the trace."""
    import torch._meta_registrations
    import torch._refs

    names = ["peft", f"transformers.models.{model_type}.modeling_{model_type}", "trials.tracing.tracer"]
    names += ["trials.tracing.layers", "trials.tracing.skeleton", *STARTED_WITH_AN_ENGINE]
    if point.get("quantization", "none") != "none" or point.get("optimizer", "adamw") != "adamw":
        names.append("bitsandbytes")
    if point.get("liger_kernel"):
        names.append("liger_kernel.transformers.monkey_patch")
    # bitsandbytes, which peft loads, and DeepSpeed's Muon compile a few functions: that alone loads all of
    # inductor.
    with replaced({(torch, "compile"): _not_compiled}):
        for name in names:
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                with suppress(ImportError):
                    importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _not_compiled(function: Any = None, **_: Any) -> Any:
    return function if function is not None else lambda later: later


@contextmanager
def recording(
    recorder: Recorder, capability: tuple[int, int], multiprocessors: int, *, liger_kernel: bool
) -> Iterator[None]:
    """Inside, allocations on `meta` are recorded as a GPU's of this compute capability."""
    install(recorder, TOLD_DEVICE_BYTES, capability)
    handlers = {
        **shortcuts.make_handlers(),
        **kernels.make_handlers(capability),
        **quantized.make_handlers(multiprocessors, capability),
    }
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        with ExitStack() as stack:
            stack.enter_context(_replaced(recorder, capability))
            stack.enter_context(replaced(quicker(recorder)))
            stack.enter_context(quantized.performed(recorder))
            stack.enter_context(liger.performed(capability, multiprocessors, used=liger_kernel))
            stack.enter_context(RecordingMode(recorder, handlers))
            yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _replaced(recorder: Recorder, capability: tuple[int, int]) -> Iterator[None]:
    from deepspeed.runtime.zero import partition_parameters
    from torch.optim import optimizer
    from transformers import masking_utils

    zeros_like, tensor = torch.zeros_like, torch.tensor

    def shape_only(values: Any, **kwargs: Any) -> torch.Tensor:
        # DeepSpeed asks for "meta" by name where it wants a shape; from here it gets device("meta") for the
        # GPU.
        if isinstance(kwargs.get("device"), str) and kwargs["device"] == "meta":
            with recorder.unrecorded():
                return zeros_like(values, **kwargs)
        return zeros_like(values, **kwargs)

    def recorded_tensor(*args: Any, **kwargs: Any) -> torch.Tensor:
        # torch.tensor builds its result below the dispatch mode.
        out = tensor(*args, **kwargs)
        if out.device.type == "meta" and not recorder.paused:
            recorder.track(out)
        return out

    from trials import model_build, quantize, trial

    build_empty = model_build.empty_model

    def unrecorded_empty_model(*args: Any, **kwargs: Any) -> Any:
        with recorder.unrecorded():
            model = build_empty(*args, **kwargs)
        return model

    swap = quantize.swap_linears

    def shapes_swapped(*args: Any) -> None:
        with recorder.unrecorded():
            swap(*args)

    plain_dropout = torch.nn.functional.dropout

    def dropout(
        values: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        # On a GPU `at::dropout` takes the fused kernel, which keeps a mask of one byte an element.
        if values.device.type == "meta" and training and 0.0 < p < 1.0 and not inplace:
            dropped: torch.Tensor = torch.native_dropout(values, p, True)[0]
            return dropped
        return plain_dropout(values, p, training, inplace)

    plain_autocast = torch.autocast

    def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
        # Autocast knows no meta device; it is off in every trial.
        return plain_autocast("cpu" if device_type == "meta" else device_type, *args, **kwargs)

    whole = masking_utils.fast_all

    def fast_all(mask: torch.Tensor) -> Any:
        # No sequence of ours is padded: a mask that says so is dropped, and attention takes another kernel.
        result = whole(mask)
        return kernels.held(result) if result.device.type == "meta" else result

    attention = attention_for(GpuKernels.of(capability))
    values: dict[tuple[Any, str], Any] = {
        (torch, "zeros_like"): shape_only,
        (torch, "tensor"): recorded_tensor,
        # zero.Init puts back what it remembers.
        (partition_parameters, "_orig_torch_tensor"): recorded_tensor,
        (torch.nn.functional, "scaled_dot_product_attention"): attention,
        (torch.nn.functional, "dropout"): dropout,
        (torch, "autocast"): autocast,
        # ZeRO-3 replaces it for good.
        (torch.nn.functional, "linear"): torch.nn.functional.linear,
        # No real stream stands behind a meta tensor.
        (torch.Tensor, "record_stream"): lambda *_: None,
        (model_build, "empty_model"): unrecorded_empty_model,
        (quantize, "swap_linears"): shapes_swapped,
        (trial, "empty_model"): unrecorded_empty_model,
        # torch's own AdamW works on lists of tensors on a GPU.
        (optimizer, "_get_foreach_kernels_supported_devices"): lambda: ["cuda", "meta"],
        # It reads a value to see whether sequences are packed; ours never are.
        (masking_utils, "find_packed_sequence_indices"): lambda *_, **__: None,
        (masking_utils, "fast_all"): fast_all,
    }
    with replaced(values):
        yield
