"""What is recorded of operations on meta and host tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from trials.device_memory import resident_bytes
from trials.tracing.kernels import DEFAULT_WORKSPACE_BYTES, HOPPER_WORKSPACE_BYTES, make_handlers
from trials.tracing.recorder import HOST_STREAM, Recorder, RecordingMode


@contextmanager
def recorded(recorder: Recorder, capability: tuple[int, int] = (9, 0)) -> Iterator[None]:
    with RecordingMode(recorder, make_handlers(capability)):
        yield


def live_bytes(recorder: Recorder) -> int:
    alive: dict[int, int] = {}
    for ident, size, stream in zip(recorder.ids, recorder.sizes, recorder.streams, strict=True):
        if ident > 0 and stream >= 0:
            alive[ident] = size
        elif ident < 0:
            alive.pop(-ident, None)
    return sum(alive.values())


def test_a_tensor_is_allocated_and_freed_once() -> None:
    recorder = Recorder()
    with recorded(recorder):
        tensor = torch.empty(1000, dtype=torch.bfloat16, device="meta")
        view = tensor.view(10, 100)[2:4]
        del tensor
        assert live_bytes(recorder) == 2000
        del view
    assert live_bytes(recorder) == 0
    assert [ident for ident in recorder.ids if ident > 0] == [1]


def test_in_place_operations_allocate_nothing() -> None:
    recorder = Recorder()
    with recorded(recorder):
        tensor = torch.zeros(1000, device="meta")
        before = len(recorder.ids)
        tensor.add_(1.0).mul_(tensor)
        assert len(recorder.ids) == before


def test_large_host_tensors_cost_no_memory() -> None:
    recorder = Recorder()
    before = resident_bytes()
    with recorded(recorder):
        weights = torch.zeros(1 << 30, dtype=torch.float32, device="cpu")
        weights.add_(1.0)
        copy = torch.empty(1 << 30, dtype=torch.float32, device="meta").to("cpu")
        weights.copy_(copy)
        total = copy.norm()
    assert resident_bytes() - before < 256 << 20
    assert float(total) == 0.0
    assert [s for s, stream in zip(recorder.sizes, recorder.streams, strict=True) if stream == HOST_STREAM][
        :2
    ] == [
        4 << 30,
        4 << 30,
    ]


def test_values_read_back_from_the_device_are_finite_and_never_overflow() -> None:
    recorder = Recorder()
    with recorded(recorder):
        norm = torch.empty(10, device="meta").norm()
        assert float(norm) == 1.0
        assert not bool(torch.isinf(norm))


@pytest.mark.parametrize(("in_backward", "allocations"), [(True, 6), (False, 7)])
def test_gradients_that_meet_are_added_in_place(in_backward: bool, allocations: int) -> None:
    """Backward of sin: a cosine and a product; of cos: a sine, its negative and a product; then 2 x the sum.

    The loss' gradient is expanded without memory. Outside of a marked backward pass the sum is one more.
    """
    recorder = Recorder()
    leaf = torch.empty(1 << 20, device="meta", requires_grad=True)
    with recorded(recorder):
        middle = leaf * 2.0
        loss = (middle.sin() + middle.cos()).sum()
        before = len(recorder.ids)
        recorder.in_backward = in_backward
        loss.backward()
    sizes = [s for ident, s in zip(recorder.ids[before:], recorder.sizes[before:], strict=True) if ident > 0]
    assert sizes.count(4 << 20) == allocations


@pytest.mark.parametrize(
    ("capability", "size"),
    [((9, 0), HOPPER_WORKSPACE_BYTES), ((8, 0), DEFAULT_WORKSPACE_BYTES), ((8, 9), DEFAULT_WORKSPACE_BYTES)],
)
def test_each_thread_that_multiplies_has_one_workspace(capability: tuple[int, int], size: int) -> None:
    recorder = Recorder()
    with recorded(recorder, capability):
        for _ in range(3):
            torch.empty(8, 8, device="meta") @ torch.empty(8, 8, device="meta")
        recorder.in_backward = True
        torch.empty(8, 8, device="meta") @ torch.empty(8, 8, device="meta")
    assert recorder.sizes.count(size) == 2


def test_dropout_keeps_a_mask_of_one_byte() -> None:
    recorder = Recorder()
    with recorded(recorder):
        out, mask = torch.ops.aten.native_dropout(
            torch.empty(100, dtype=torch.bfloat16, device="meta"), 0.1, True
        )
    assert (out.dtype, mask.dtype) == (torch.bfloat16, torch.bool)
    assert recorder.sizes[1:3] == [200, 100]
