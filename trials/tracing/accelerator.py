"""A DeepSpeed accelerator whose device memory is `meta` tensors: DeepSpeed's own code runs, and is recorded.

It answers what DeepSpeed's CUDA accelerator would answer; kernels are no-operations, streams are numbers, and
pinning makes a new host tensor as PyTorch's `pin_memory` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

from trials.tracing.host_memory import host_tensor
from trials.tracing.labels import BUCKETS
from trials.tracing.recorder import PINNED_STREAM, Recorder


class MetaStream:
    """A CUDA stream that only has a number."""

    _count = 0

    def __init__(self, *_: Any, default: bool = False, **__: Any) -> None:
        if default:
            self.number = 0
        else:
            MetaStream._count += 1
            self.number = MetaStream._count

    def wait_stream(self, _: Any) -> None:
        """Ordering does not change what is allocated."""

    def wait_event(self, _: Any) -> None:
        """Ordering does not change what is allocated."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def record_event(self, event: Any = None) -> Any:
        """An event that is always done."""
        return event or MetaEvent()

    def query(self) -> bool:
        """Nothing is pending."""
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetaStream) and other.number == self.number

    def __hash__(self) -> int:
        return self.number


class MetaEvent:
    """A CUDA event that has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        """Nothing runs."""

    def wait(self, *_: Any) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        """Always done."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """No time passes."""
        return 0.0


class _NoKernels:
    """What a DeepSpeed op builder would have compiled: every function exists and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return _no_kernel


def _no_kernel(*_: Any, **__: Any) -> int:
    return 0


class _Named:
    def __init__(self, name: str) -> None:
        self._device_name = name

    def device_name(self) -> str:
        return self._device_name


class MetaAccelerator(CUDA_Accelerator):  # type: ignore[misc]
    """See the module's docstring.

    Args:
        recorder: where allocations are logged.
        total_bytes: the device memory DeepSpeed is told of.
    """

    def __init__(self, recorder: Recorder, total_bytes: int, capability: tuple[int, int]) -> None:
        self._name = "meta"
        self._communication_backend_name = "fake"
        self._compile_backend = "inductor"
        self._nvtx_domains: dict[str, Any] = {}
        self.recorder = recorder
        self.total_bytes = total_bytes
        self.capability = capability
        self._default = MetaStream(default=True)
        self._current = self._default

    def _init_pynvml(self) -> None:
        pass

    def device_name(self, device_index: int | None = None) -> str:
        return "meta"

    def device(self, device_index: int | None = None) -> Any:
        return torch.device("meta")

    def set_device(self, device_index: int) -> None:
        pass

    def current_device(self) -> int:
        return 0

    def current_device_name(self) -> str:
        return "meta"

    def device_count(self) -> int:
        return 1

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def is_available(self) -> bool:
        return True

    def is_bf16_supported(self) -> bool:
        return self.capability >= (8, 0)

    def is_fp16_supported(self) -> bool:
        return True

    def is_triton_supported(self) -> bool:
        return self.capability >= (8, 0)

    def communication_backend_version(self) -> tuple[int, ...]:
        return (2, 27, 0)

    def manual_seed(self, seed: int) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass

    def initial_seed(self) -> int:
        return 0

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, new_state: Any, device_index: int | None = None) -> None:
        pass

    @property
    def Stream(self) -> Any:
        return MetaStream

    @property
    def Event(self) -> Any:
        return MetaEvent

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        if stream is None:
            yield
            return
        before, self._current = self._current, stream
        try:
            with self.recorder.on_stream(stream.number):
                yield
        finally:
            self._current = before

    def current_stream(self, device_index: int | None = None) -> MetaStream:
        return self._current

    def default_stream(self, device_index: int | None = None) -> MetaStream:
        return self._default

    def empty_cache(self) -> None:
        self.recorder.mark("empty_cache")

    def memory_allocated(self, device_index: int | None = None) -> int:
        return 0

    max_memory_allocated = memory_allocated
    memory_reserved = memory_allocated
    max_memory_reserved = memory_allocated
    memory_cached = memory_allocated
    max_memory_cached = memory_allocated

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        return {}

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        pass

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        pass

    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        pass

    def total_memory(self, device_index: int | None = None) -> int:
        return self.total_bytes

    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_bytes

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        pass

    def range_pop(self, domain: Any = None) -> None:
        pass

    def lazy_call(self, callback: Any) -> None:
        callback()

    def _typed(self, dtype: torch.dtype) -> Any:
        return lambda values: torch.tensor(values, dtype=dtype, device="meta")

    @property
    def BFloat16Tensor(self) -> Any:
        return self._typed(torch.bfloat16)

    @property
    def ByteTensor(self) -> Any:
        return self._typed(torch.uint8)

    @property
    def DoubleTensor(self) -> Any:
        return self._typed(torch.double)

    @property
    def FloatTensor(self) -> Any:
        return self._typed(torch.float)

    @property
    def HalfTensor(self) -> Any:
        return self._typed(torch.half)

    @property
    def IntTensor(self) -> Any:
        return self._typed(torch.int)

    @property
    def LongTensor(self) -> Any:
        return self._typed(torch.long)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.device.type == "meta")

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._torch_empty_pinned(tensor, tensor.shape)

    def _torch_empty_pinned(self, template: torch.Tensor, shape: Any) -> torch.Tensor:
        out = host_tensor(tuple(shape), template.dtype)
        self.recorder.place(out, PINNED_STREAM)
        return out

    def unpin_memory(self, tensor: torch.Tensor) -> None:
        pass

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return True


def _own_parameters(module: Any, recurse: bool = False) -> list[Any]:
    """What DeepSpeed's `iter_params` gives, which it asks for a hundred times a module, at once."""
    if recurse:
        own = list(module.parameters())
    else:
        given = module.__dict__["_parameters"]
        own = [parameter for parameter in given.values() if parameter is not None] if given else []
    external = module.__dict__.get("_external_params")
    return [*own, *external.values()] if external else own


def _is_leaf(module: Any) -> bool:
    return bool(module.__dict__.get("_z3_leaf", False))


def install(recorder: Recorder, total_bytes: int, capability: tuple[int, int]) -> MetaAccelerator:
    """Make DeepSpeed use the recording accelerator, with ops that do nothing, in this process."""
    from deepspeed.accelerator import set_accelerator
    from deepspeed.ops.op_builder.builder import OpBuilder

    OpBuilder.load = lambda self, verbose=True: _NoKernels()
    from deepspeed.runtime.zero import linear

    # Autocast knows no meta device; it is off in every trial, and the CPU's state says so as well as the
    # GPU's.
    linear.get_accelerator = lambda: _Named("cpu")

    def same_on_all_ranks(ints: list[int]) -> None:
        # The values would come back from the device; what is allocated for them is a length, then the list.
        with recorder.scratch(8, category=BUCKETS):
            pass
        with recorder.scratch(8 * len(ints), category=BUCKETS):
            pass

    from deepspeed.runtime.zero import (
        parameter_offload,
        partition_parameters,
        partitioned_param_coordinator,
        stage3,
    )
    from deepspeed.utils import nvtx

    for module in (partition_parameters, partitioned_param_coordinator, stage3):
        module.assert_ints_same_as_other_ranks = same_on_all_ranks
    for module in (parameter_offload, partitioned_param_coordinator):
        module.iter_params = _own_parameters
        module.z3_leaf_module = _is_leaf
    nvtx.enable_nvtx = False
    accelerator = MetaAccelerator(recorder, total_bytes, capability)
    set_accelerator(accelerator)
    return accelerator
