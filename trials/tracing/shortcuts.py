"""Elementwise operations on `meta` tensors without PyTorch's slow shape rules, which are Python.

Only what is plain: contiguous operands of one precision, the first of the result's shape. Everything else
takes PyTorch's own way.
"""

from __future__ import annotations

from typing import Any

import torch

from trials.tracing.recorder import Handler, Recorder

aten = torch.ops.aten


def make_handlers() -> dict[Any, Handler]:
    """The handlers, by operator."""
    table: dict[Any, Handler] = dict.fromkeys(
        (
            aten.mul.Tensor,
            aten.sub.Tensor,
            aten.div.Tensor,
            aten.mul.Scalar,
            aten.div.Scalar,
            aten.add.Scalar,
            aten.neg.default,
            aten.abs.default,
            aten.rsqrt.default,
            aten.sigmoid.default,
            aten.tanh.default,
            aten.pow.Tensor_Scalar,
        ),
        _like_first,
    )
    comparisons = (aten.ne.Scalar, aten.eq.Tensor, aten.logical_and.default, aten.logical_not.default)
    table.update(dict.fromkeys(comparisons, _truth))
    table.update(
        dict.fromkeys(
            (
                aten.normal_.default,
                aten.uniform_.default,
                aten.zero_.default,
                aten.fill_.Scalar,
                aten.mul_.Tensor,
                aten.mul_.Scalar,
                aten.div_.Tensor,
                aten.add_.Tensor,
            ),
            _in_place,
        )
    )
    return table


def like_first(args: Any, kwargs: Any) -> Any:
    """A tensor like the first operand, where the operation is plain; `NotImplemented` elsewhere."""
    return _like_first(None, None, args, kwargs)


def _like_first(recorder: Recorder | None, func: Any, args: Any, kwargs: Any) -> Any:
    first = args[0]
    if kwargs or not _plain(first) or not first.dtype.is_floating_point:
        return NotImplemented
    for other in args[1:]:
        if isinstance(other, torch.Tensor) and not _joins(first, other):
            return NotImplemented
        if isinstance(other, complex):
            return NotImplemented
    return torch.empty_like(first)


def _truth(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    first = args[0]
    if kwargs or not _plain(first):
        return NotImplemented
    for other in args[1:]:
        if isinstance(other, torch.Tensor) and not (_plain(other) and other.shape == first.shape):
            return NotImplemented
    return torch.empty_like(first, dtype=torch.bool)


def _in_place(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if args[0].device.type != "meta":
        return NotImplemented
    for other in args[1:]:
        if isinstance(other, torch.Tensor) and other.device.type != "meta":
            return NotImplemented
    return args[0]


def _plain(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "meta" and tensor.is_contiguous()


def _joins(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the result of both has the first one's shape, layout and precision."""
    if other.dtype != first.dtype or not _plain(other) or other.dim() > first.dim():
        return False
    return all(
        extent in (1, whole)
        for extent, whole in zip(reversed(other.shape), reversed(first.shape), strict=False)
    )
