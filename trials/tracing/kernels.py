"""What CUDA kernels allocate that PyTorch's `meta` kernels do not show, operator by operator.

Each handler is given an operation before it runs and may answer in its place. Sources: the operators' CUDA
implementations under `aten/src/ATen/native/cuda` and `aten/src/ATen/cuda/CUDABlas.cpp` (torch 2.11 to 2.13).
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from trials.tracing.recorder import Handler, Recorder
from trials.tracing.shortcuts import elementwise

aten = torch.ops.aten
MIB = 1 << 20

# `getChosenWorkspaceSize`: Hopper and Blackwell data-centre parts use 32 MiB, the others cuBLAS' own
# `:4096:2:16:8`.
HOPPER_WORKSPACE_BYTES = 32 * MIB
DEFAULT_WORKSPACE_BYTES = (4096 * 2 + 16 * 8) * 1024
LT_WORKSPACE_BYTES = MIB
# Marks a truth value that holds; every other one that is read back does not.
HOLDS = "_holds_while_tracing"


def cublas_workspace_bytes(capability: tuple[int, int]) -> int:
    """The workspace PyTorch gives each cuBLAS handle, one per thread that multiplies."""
    return HOPPER_WORKSPACE_BYTES if capability[0] in (9, 10) else DEFAULT_WORKSPACE_BYTES


def make_handlers(capability: tuple[int, int]) -> dict[Any, Handler]:
    """The handlers for a GPU of this compute capability."""
    workspace = cublas_workspace_bytes(capability)

    def multiply(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
        first, second = args[0], args[1]
        if first.device.type != "meta":
            return NotImplemented
        recorder.workspace("cublas", workspace)
        if func is aten.mm.default and second.device.type == "meta" and first.shape[1] == second.shape[0]:
            # Without PyTorch's slow shape rules.
            return first.new_empty((first.shape[0], second.shape[1]))
        return NotImplemented

    def multiply_add(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
        bias = args[0]
        if bias.device.type == "meta":
            recorder.workspace("cublas", workspace)
            if bias.dim() == 1:
                # A bias is fused by cuBLASLt, whose workspace is another.
                recorder.workspace("cublaslt", LT_WORKSPACE_BYTES)
        return NotImplemented

    return {
        aten.all.default: _all,
        aten._local_scalar_dense.default: _item,
        aten.equal.default: _equal,
        aten.mm.default: multiply,
        aten.bmm.default: multiply,
        aten.baddbmm.default: multiply,
        aten.addmm.default: multiply_add,
        aten.add.Tensor: _sum_of_gradients,
        aten.native_dropout.default: _native_dropout,
        aten.embedding_dense_backward.default: _embedding_backward,
        aten._softmax_backward_data.default: _softmax_backward,
        aten._safe_softmax.default: _safe_softmax,
    }


def held(truth: torch.Tensor) -> torch.Tensor:
    """A truth value on the device, marked as one that holds when it is read back."""
    setattr(truth, HOLDS, True)
    return truth


def _all(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Whether all of a mask is set: it is, for no sequence is padded (transformers then drops the mask)."""
    if args[0].device.type != "meta":
        return NotImplemented
    return held(torch.empty((), dtype=torch.bool, device="meta"))


def _item(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A value read back from the device: nothing overflows, every norm and loss is finite."""
    tensor = args[0]
    if tensor.device.type != "meta":
        return NotImplemented
    if tensor.dtype == torch.bool:
        return hasattr(tensor, HOLDS)
    return 1.0 if tensor.dtype.is_floating_point else 0


def _equal(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A comparison read back from the device: a scaled loss is not 1."""
    return False if args[0].device.type == "meta" else NotImplemented


def _sum_of_gradients(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Two gradients that meet in the backward pass.

    `torch/csrc/autograd/input_buffer.cpp` adds into the older one if nobody else holds it, but never while
    a dispatch mode is on, as now. Only the engine itself adds with no Python between it and this call.
    """
    if not recorder.in_backward or kwargs:
        return elementwise(args, kwargs)
    old, new = args[0], args[1]
    if not isinstance(new, torch.Tensor) or old.shape != new.shape or old.device.type != "meta":
        return NotImplemented
    frame: Any = sys._getframe(1)
    while frame.f_code.co_name in ("_fn", "inner", "__torch_dispatch__"):
        frame = frame.f_back
    if frame.f_code.co_name != "_engine_run_backward":
        return elementwise(args, kwargs)
    # The wrapper that is asked for the count holds the second reference.
    exclusive = torch._C._storage_Use_Count(old.untyped_storage()._cdata) <= 2
    if exclusive and recorder.is_live(old) and old.is_contiguous() and old.dtype == new.dtype:
        return old
    return elementwise(args, kwargs)


def _native_dropout(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """CUDA keeps a mask of one byte an element, and it keeps the input's layout."""
    tensor, probability, train = args
    if tensor.device.type != "meta" or probability == 0 or train is False:
        return NotImplemented
    return torch.empty_like(tensor), torch.empty_like(tensor, dtype=torch.bool)


def _embedding_backward(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """The gradient is summed in sorted order (`embedding_dense_backward_cuda`).

    Only above 3,072 tokens; below, the little that is counted here too many keeps traces of different sizes
    alike.
    """
    gradient, indices = args[0], args[1]
    if gradient.device.type == "meta":
        tokens = indices.numel()
        with recorder.scratch(8 * tokens, 8 * tokens, 8 * tokens):
            pass
    return NotImplemented


def _softmax_backward(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """CUDA multiplies gradient and output into a tensor of its own first (`softmax_backward_cuda_out`)."""
    gradient, _, _, dtype = args
    if gradient.device.type != "meta":
        return NotImplemented
    result = torch.empty(gradient.shape, dtype=dtype, device=gradient.device)
    recorder.track(result)
    with recorder.scratch(gradient.numel() * gradient.element_size()):
        pass
    return result


def _safe_softmax(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Attention's own softmax is several operations, which the mode sees as one (`native/SoftMax.cpp`)."""
    scores = args[0]
    dtype = kwargs.get("dtype") or (args[2] if len(args) > 2 else None) or scores.dtype
    if scores.device.type != "meta":
        return NotImplemented
    # The softmax itself, which scores were masked, and which rows altogether.
    elements, rows = scores.numel(), scores.numel() // scores.shape[args[1]]
    with recorder.scratch(elements * dtype.itemsize, elements, rows):
        result = torch.empty(scores.shape, dtype=dtype, device=scores.device)
        recorder.track(result)
    return result
