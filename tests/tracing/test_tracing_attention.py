"""Which attention kernel a GPU takes, by PyTorch's documented order and limits."""

from __future__ import annotations

import pytest
import torch

from trials.tracing.attention import GpuKernels, choose_kernel

A100, RTX_4090, H200, T4 = (8, 0), (8, 9), (9, 0), (7, 5)


def choose(
    capability: tuple[int, int],
    *,
    dtype: torch.dtype = torch.bfloat16,
    head_dim: int = 64,
    key_heads: int = 8,
    mask: bool = False,
    dropout: float = 0.0,
) -> str:
    query = torch.empty(2, 8, 128, head_dim, dtype=dtype, device="meta", requires_grad=True)
    key = torch.empty(2, key_heads, 128, head_dim, dtype=dtype, device="meta", requires_grad=True)
    bias = torch.empty(2, 1, 128, 128, dtype=torch.bool, device="meta") if mask else None
    kernels = GpuKernels.of(capability)
    return choose_kernel(kernels, query, key, key, bias, dropout, not mask, key_heads != 8)


@pytest.mark.parametrize(
    ("expected", "capability", "options"),
    [
        ("cudnn", H200, {}),
        ("cudnn", H200, {"key_heads": 2}),
        ("cudnn", H200, {"mask": True}),
        ("flash", H200, {"head_dim": 256}),
        ("flash", H200, {"dropout": 0.1}),
        ("flash", A100, {}),
        ("flash", A100, {"key_heads": 2}),
        ("efficient", A100, {"mask": True}),
        ("efficient", A100, {"dtype": torch.float32}),
        ("math", A100, {"dtype": torch.float32, "key_heads": 2}),
        ("math", H200, {"dtype": torch.float32, "key_heads": 2}),
        ("efficient", RTX_4090, {"head_dim": 224}),
        ("flash", RTX_4090, {"head_dim": 256}),
        ("efficient", T4, {"dtype": torch.float16}),
        ("math", T4, {"dtype": torch.bfloat16}),
        ("flash", A100, {"head_dim": 80}),
    ],
)
def test_kernel_by_gpu_and_tensors(
    expected: str, capability: tuple[int, int], options: dict[str, object]
) -> None:
    assert choose(capability, **options) == expected  # type: ignore[arg-type]
