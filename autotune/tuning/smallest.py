"""Which of many points needs the least device memory, told from the knobs alone.

Every key below lowers memory when all else is equal; their order is by how much they usually weigh. It
decides what is tried first, so that something works early, and what is measured when nothing fits. It is an
order to try things in, not a proof: dominance and measurements do the excluding.
"""

from __future__ import annotations

from collections.abc import Iterable

from trials.wire import Device, Point

_OFFLOAD = {
    "none": 0,
    "optimizer": 1,
    "nvme_optimizer": 1,
    "optimizer+parameters": 2,
    "nvme_optimizer+parameters": 2,
}
_WEIGHT_BITS = {"nf4": 4, "int8": 8}
_ATTENTION = {"flash_attention_2": 0, "sdpa": 1, "eager": 2}
_NVME = ("nvme_optimizer", "nvme_optimizer+parameters")

Key = tuple[float, ...]


def smallest_point(points: Iterable[Point], device: Device) -> Point:
    """The point that likely needs the least device memory; `points` must not be empty."""
    return min(points, key=lambda point: memory_key(point, device))


def smallest_host_point(points: Iterable[Point], device: Device) -> Point:
    """The point that likely needs the least host memory; `points` must not be empty.

    Beside the process itself that is what is offloaded; on the CPU it is the device's memory too.
    """
    return min(points, key=lambda point: (float(_OFFLOAD[point.offload]), *memory_key(point, device)))


def safest_point(points: Iterable[Point], device: Device) -> Point:
    """The point to begin with: little memory, but nothing slow or delicate unless the space has nothing else.

    Offload starts slowly and needs host memory, NVMe more so, and partitioning buys little on one GPU.
    """
    return min(points, key=lambda point: _safety_key(point, device))


def memory_key(point: Point, device: Device) -> Key:
    """Smaller needs less device memory, as far as the knobs tell.

    On the CPU what is offloaded stays in the same memory and still counts, and partitioning adds buffers.
    """
    partition = -float(point.zero_stage) if device == "cuda" else float(point.zero_stage)
    offload = -float(_OFFLOAD[point.offload]) if device == "cuda" else float(_OFFLOAD[point.offload])
    return (
        float(_WEIGHT_BITS.get(point.quantization, 32 if point.precision == "fp32" else 16)),
        float(point.micro_batch_size),
        -point.checkpoint_fraction,
        offload,
        partition,
        0.0 if point.liger_kernel else 1.0,
        float(_ATTENTION[point.attention]),
        float(point.lora_rank) if point.lora_rank else float("inf"),
        1.0 if point.optimizer == "adamw" else 0.0,
        float(point.gradient_accumulation_steps > 1),
        float(point.gradient_accumulation_steps),
        float(point.zero_bucket_elements or 0),
    )


def _safety_key(point: Point, device: Device) -> Key:
    return (
        float(point.offload in _NVME),
        float(_OFFLOAD[point.offload]),
        float(point.zero_stage),
        float(point.quantization != "none"),
        *memory_key(point, device),
    )
