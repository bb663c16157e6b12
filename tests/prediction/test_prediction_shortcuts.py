"""Shortcuts against PyTorch's own shape rules: shape, layout and precision of every result they give."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from trials.tracing.shortcuts import make_handlers

aten = torch.ops.aten
HANDLERS = make_handlers()


def layouts(dtype: torch.dtype) -> list[torch.Tensor]:
    """The layouts that models and their gradients have, of one extent where they can be."""
    plain = torch.empty(2, 3, 4, 8, dtype=dtype, device="meta")
    return [
        plain,
        torch.empty(2, 4, 3, 8, dtype=dtype, device="meta").transpose(1, 2),
        torch.empty(2, 4, 3, 16, dtype=dtype, device="meta").transpose(1, 2)[..., :8],
        torch.empty(2, 3, 4, 16, dtype=dtype, device="meta")[..., 8:],
        torch.empty(2, 3, 4, 1, dtype=dtype, device="meta").expand(2, 3, 4, 8),
        plain.permute(3, 0, 2, 1).reshape(8, 2, 4, 3).permute(1, 3, 2, 0),
        torch.empty(1, 1, 4, 8, dtype=dtype, device="meta"),
        torch.empty(1, 3, 4, 8, dtype=dtype, device="meta"),
        torch.empty(8, dtype=dtype, device="meta"),
        torch.empty((), dtype=dtype, device="meta"),
    ]


ALL = [*layouts(torch.bfloat16), *layouts(torch.float32), torch.empty((), dtype=torch.bool, device="meta")]


def agrees(operation: Any, *args: Any) -> bool:
    """Whether the shortcut was taken; it must then give what PyTorch gives."""
    given = HANDLERS[operation](None, operation, args, {})
    if given is NotImplemented:
        return False
    expected = operation(*args)
    assert given.shape == expected.shape
    assert given.dtype == expected.dtype
    assert given.stride() == expected.stride()
    return True


@pytest.mark.parametrize("operation", [aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor], ids=str)
def test_of_two_tensors(operation: Any) -> None:
    taken = 0
    for one, other in itertools.product(ALL, ALL):
        try:
            torch.broadcast_shapes(one.shape, other.shape)
        except RuntimeError:
            continue
        if operation is aten.sub.Tensor and torch.bool in (one.dtype, other.dtype):
            continue
        taken += agrees(operation, one, other)
    assert taken > 20


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        (aten.neg.default, ()),
        (aten.silu.default, ()),
        (aten.rsqrt.default, ()),
        (aten.div.Scalar, (3,)),
        (aten.pow.Tensor_Scalar, (2,)),
        (aten.mean.dim, ([-1], True)),
        (aten.sum.dim_IntList, ([-1], True)),
        (aten.linalg_vector_norm.default, (2,)),
        (aten.amax.default, ()),
    ],
    ids=str,
)
def test_of_one_tensor(operation: Any, more: tuple[Any, ...]) -> None:
    tensors = [one for one in ALL if one.dtype != torch.bool]
    assert sum(agrees(operation, one, *more) for one in tensors) >= 2


def test_side_by_side() -> None:
    taken = 0
    for one, other in itertools.product(layouts(torch.bfloat16), layouts(torch.bfloat16)):
        if one.dim() == 4 and one.shape[:-1] == other.shape[:-1]:
            taken += agrees(aten.cat.default, [one, other], -1)
    assert taken > 4


def test_of_an_empty_tensor_like_another() -> None:
    taken = sum(agrees(aten.empty_like.default, one) for one in ALL)
    assert taken > 5
    given = HANDLERS[aten.empty_like.default](None, None, (ALL[0],), {"dtype": torch.int64})
    assert given.dtype == torch.int64
    assert given.stride() == ALL[0].stride()
