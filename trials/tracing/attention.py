"""Which scaled-dot-product kernel a GPU would take, and what that kernel allocates.

On `meta` tensors PyTorch always takes the quadratic path, so the choice is made here as
`aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` makes it on an NVIDIA GPU (torch 2.11 to 2.13), and
the chosen kernel's own operator is called: its meta function and its autograd formula are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

aten = torch.ops.aten

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class GpuKernels:
    """What decides between kernels, beside the tensors.

    Attributes:
        capability: compute capability, as (9, 0).
        prefer_cudnn: whether cuDNN's attention comes first: torch >= 2.11 with cuDNN above 9.15 (the CUDA
            13 wheels) on compute capability 9.x and 10.x.
        cudnn_head_dim: the largest head dimension of cuDNN's attention.
        efficient_grouped: whether the memory-efficient kernel takes grouped queries (it does not up to
            torch 2.13).
    """

    capability: tuple[int, int]
    prefer_cudnn: bool
    cudnn_head_dim: int = 128
    efficient_grouped: bool = False

    @classmethod
    def of(cls, capability: tuple[int, int]) -> GpuKernels:
        """The usual choice for a compute capability."""
        return cls(capability=capability, prefer_cudnn=capability[0] in (9, 10))


def _grouped_ok(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> bool:
    heads, key_heads, value_heads = query.shape[-3], key.shape[-3], value.shape[-3]
    if enable_gqa:
        return bool(key_heads == value_heads and heads % key_heads == 0)
    return bool(heads == key_heads == value_heads)


def choose_kernel(
    gpu: GpuKernels,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
) -> str:
    """`cudnn`, `flash`, `efficient` or `math`. Tensors are [batch, heads, sequence, head_dim]."""
    order = ("cudnn", "flash", "efficient") if gpu.prefer_cudnn else ("flash", "efficient")
    for name in order:
        if _usable(name, gpu, query, key, value, mask, dropout, is_causal, enable_gqa):
            return name
    return "math"


def _usable(
    name: str,
    gpu: GpuKernels,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
) -> bool:
    if query.dim() != 4 or 0 in query.shape or 0 in key.shape:
        return False
    half = HALF if gpu.capability >= (8, 0) else (torch.float16,)
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    head_dim, value_dim = query.shape[-1], value.shape[-1]
    if any(t.stride(-1) != 1 for t in (query, key, value)):
        return False
    if name == "cudnn":
        return (
            query.dtype in half
            and gpu.capability >= (8, 0)
            and (dropout * 16.0).is_integer()
            and head_dim <= gpu.cudnn_head_dim
            and value_dim <= gpu.cudnn_head_dim
            and head_dim % 8 == 0
            and value_dim % 8 == 0
            and key.shape[2] != 1
            and _grouped_ok(query, key, value, enable_gqa)
            and (mask is None or not mask.requires_grad)
        )
    if name == "flash":
        narrow = gpu.capability in ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1))
        return (
            query.dtype in half
            and gpu.capability >= (8, 0)
            and mask is None
            and head_dim == key.shape[-1] == value_dim <= 256
            and not (is_causal and query.shape[2] != key.shape[2])
            and not (needs_grad and narrow and not (head_dim <= 192 or (dropout == 0 and head_dim > 224)))
            and _grouped_ok(query, key, value, enable_gqa)
        )
    allowed = (*half, torch.float32)
    alignment = _alignment(gpu, query.dtype)
    return (
        query.dtype in allowed
        and head_dim == key.shape[-1]
        and head_dim % alignment == 0
        and value_dim % alignment == 0
        and (gpu.efficient_grouped or query.shape[-3] == key.shape[-3])
        and _grouped_ok(query, key, value, enable_gqa)
    )


def _alignment(gpu: GpuKernels, dtype: torch.dtype) -> int:
    bits = 16 if dtype in HALF else 32
    alignment = 4 if gpu.capability >= (8, 0) else 1
    tensor_cores = gpu.capability >= (8, 0) or (gpu.capability >= (7, 0) and dtype in HALF)
    return max(alignment, 128 // bits) if tensor_cores else alignment


def attention_for(gpu: GpuKernels) -> Callable[..., torch.Tensor]:
    """A stand-in for `torch.nn.functional.scaled_dot_product_attention` that takes the GPU's kernel."""
    original = torch.nn.functional.scaled_dot_product_attention

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if query.device.type != "meta":
            return original(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        kernel = choose_kernel(gpu, query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        if attn_mask is not None and attn_mask.dtype == torch.bool and kernel != "math":
            attn_mask = _additive(attn_mask, query.dtype)
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        out: Any
        if kernel == "cudnn":
            out = aten._scaled_dot_product_cudnn_attention(
                query, key, value, attn_mask, needs_grad, dropout_p, is_causal, False, scale=scale
            )[0]
        elif kernel == "flash":
            pad = -query.shape[-1] % 8
            dim = query.shape[-1]
            if pad:
                query, key, value = (torch.nn.functional.pad(t, (0, pad)) for t in (query, key, value))
            scale = dim**-0.5 if scale is None else scale
            out = aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
            if pad:
                out = out[..., :dim]
        elif kernel == "efficient":
            if attn_mask is not None:
                attn_mask = _aligned(attn_mask, query, key)
            out = aten._scaled_dot_product_efficient_attention(
                query, key, value, attn_mask, needs_grad, dropout_p, is_causal, scale=scale
            )[0]
        else:
            out = original(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        return out

    return attention


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as PyTorch turns it into an additive one before a fused kernel."""
    return torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device))


def _aligned(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The efficient kernel wants the mask's last extent in memory to be a multiple of 16 (`pad_bias`)."""
    extent = mask.shape[-1]
    if extent % 16:
        padded = torch.nn.functional.pad(mask, (0, 16 - extent % 16))
        mask = padded[..., :extent]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
