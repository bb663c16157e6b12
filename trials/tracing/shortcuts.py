"""Operations on `meta` tensors without PyTorch's slow shape rules, which are Python.

Only what is plain: operands of one precision, whose result has one operand's shape and layout. Everything
else takes PyTorch's own way. `tests/prediction/test_prediction_shortcuts.py` holds each against that way.
"""

from __future__ import annotations

from typing import Any

import torch

from trials.tracing.recorder import Handler, Recorder

aten = torch.ops.aten


def make_handlers() -> dict[Any, Handler]:
    """The handlers, by operator."""
    unary = (
        aten.mul.Scalar,
        aten.div.Scalar,
        aten.add.Scalar,
        aten.neg.default,
        aten.abs.default,
        aten.rsqrt.default,
        aten.sigmoid.default,
        aten.tanh.default,
        aten.silu.default,
        aten.pow.Tensor_Scalar,
    )
    in_place = (
        aten.normal_.default,
        aten.uniform_.default,
        aten.zero_.default,
        aten.fill_.Scalar,
        aten.mul_.Tensor,
        aten.mul_.Scalar,
        aten.div_.Tensor,
        aten.add_.Tensor,
    )
    table: dict[Any, Handler] = {
        **dict.fromkeys((*unary, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor), _elementwise),
        **dict.fromkeys(
            (aten.ne.Scalar, aten.eq.Tensor, aten.logical_and.default, aten.logical_not.default), _truth
        ),
        **dict.fromkeys(in_place, _in_place),
        **dict.fromkeys((aten.mean.dim, aten.sum.dim_IntList), _over_last),
        **dict.fromkeys((aten.amax.default, aten.amin.default), _over_all),
        aten.linalg_vector_norm.default: _norm,
        aten.cat.default: _cat,
        aten.empty_like.default: _like,
    }
    return table


def elementwise(args: Any, kwargs: Any) -> Any:
    """The result of a plain elementwise operation; `NotImplemented` elsewhere."""
    return _elementwise(None, None, args, kwargs)


def _elementwise(recorder: Recorder | None, func: Any, args: Any, kwargs: Any) -> Any:
    first = args[0]
    if kwargs or not _on_meta(first):
        return NotImplemented
    if not first.dtype.is_floating_point and not (func is aten.mul.Tensor and _is_scalar(first)):
        return NotImplemented
    others = [other for other in args[1:] if isinstance(other, torch.Tensor)]
    if any(isinstance(other, complex) for other in args[1:]):
        return NotImplemented
    if len(others) == 1 and first.dim() < others[0].dim():
        # Only two contiguous operands leave no question of the layout.
        larger = others[0]
        if not (_plain(larger) and _plain(first) and _joins(larger, first)):
            return NotImplemented
        return larger.new_empty(larger.shape)
    if not all(_joins(first, other) for other in others):
        return NotImplemented
    if first.is_contiguous() and all(other.is_contiguous() for other in others):
        return first.new_empty(first.shape)
    return torch.empty_like(first) if _ordered(first) else NotImplemented


def _like(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """An empty tensor like a contiguous one, on the device too, in any precision."""
    values = args[0]
    if not _plain(values) or len(args) > 1 or not kwargs.keys() <= {"dtype"}:
        return NotImplemented
    return values.new_empty(values.shape, **kwargs)


def _truth(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    first = args[0]
    if kwargs or not _plain(first):
        return NotImplemented
    for other in args[1:]:
        if isinstance(other, torch.Tensor) and not (_plain(other) and other.shape == first.shape):
            return NotImplemented
    return first.new_empty(first.shape, dtype=torch.bool)


def _in_place(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if not args[0].is_meta:
        return NotImplemented
    for other in args[1:]:
        if isinstance(other, torch.Tensor) and not other.is_meta:
            return NotImplemented
    return args[0]


def _over_last(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A mean or sum over the last extent, which stays as one."""
    values = args[0]
    if kwargs or len(args) != 3 or not args[2] or not _plain(values) or not values.dtype.is_floating_point:
        return NotImplemented
    if values.dim() < 2 or list(args[1]) not in ([-1], [values.dim() - 1]):
        return NotImplemented
    return values.new_empty((*values.shape[:-1], 1))


def _over_all(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    values = args[0]
    if kwargs or len(args) > 1 or not _on_meta(values):
        return NotImplemented
    return values.new_empty(())


def _norm(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    values = args[0]
    if kwargs or len(args) > 2 or not _on_meta(values) or not values.dtype.is_floating_point:
        return NotImplemented
    return values.new_empty(())


def _cat(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Two tensors side by side in their last extent."""
    tensors, dim = args[0], args[1] if len(args) > 1 else 0
    if kwargs or len(tensors) != 2 or not all(map(_on_meta, tensors)):
        return NotImplemented
    first, second = tensors
    # Four extents whose last lies densest are not channels-last, the one layout that `cat` keeps.
    if first.dim() < 2 or dim not in (-1, first.dim() - 1) or first.dtype != second.dtype:
        return NotImplemented
    if 1 in first.shape[1:] or first.stride(-1) != 1 or first.shape[:-1] != second.shape[:-1]:
        return NotImplemented
    return first.new_empty((*first.shape[:-1], first.shape[-1] + second.shape[-1]))


def _on_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


def _plain(tensor: Any) -> bool:
    return _on_meta(tensor) and bool(tensor.is_contiguous())


def _is_scalar(tensor: torch.Tensor) -> bool:
    return bool(tensor.dim() == 0)


def _ordered(tensor: torch.Tensor) -> bool:
    """Whether its strides alone give the layout of a result (`TensorIterator::reorder_dimensions`)."""
    strides = tensor.stride()
    return 0 not in strides and len(set(strides)) == len(strides) and 1 not in tensor.shape


def _joins(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the result of both has the first one's shape and precision."""
    if other.dtype != first.dtype or not other.is_meta or other.dim() > first.dim():
        return False
    return all(
        extent in (1, whole)
        for extent, whole in zip(reversed(other.shape), reversed(first.shape), strict=False)
    )
