"""What of a GPU's memory is not the allocator's, and what decides which kernels run."""

from __future__ import annotations

from dataclasses import dataclass

from trials.wire import Point

MIB = 1 << 20

# Measured on an H200 (torch 2.11, CUDA 13, one process, a NCCL world of one): NVML less reserved, medians
# over 93 runs. A ZeRO-3 engine opens a further communicator.
H200_PLAIN_BYTES = 1942 * MIB
H200_FP32_BYTES = 1924 * MIB
H200_OFFLOAD_BYTES = 1956 * MIB
H200_STAGE3_BYTES = 2332 * MIB
H200_STAGE3_OFFLOAD_BYTES = 2344 * MIB

# Of that share, what a CUDA context keeps for every resident thread grows with the GPU; code and NCCL do not.
_FIXED_SHARE = 0.6
_H200_RESIDENT_THREADS = 132 * 2048


@dataclass(frozen=True)
class Hardware:
    """What a prediction needs to know of a GPU.

    Attributes:
        capability: compute capability, as (9, 0).
        multiprocessors: streaming multiprocessors.
        name: as given; None for the H200 the shipped figures were measured on.
    """

    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    name: str | None = None


# A usual part of each compute capability, where the name says no more.
_USUAL_MULTIPROCESSORS = {
    (6, 0): 56,
    (6, 1): 28,
    (7, 0): 80,
    (7, 5): 40,
    (8, 0): 108,
    (8, 6): 82,
    (8, 9): 128,
    (9, 0): 132,
    (10, 0): 148,
    (10, 3): 160,
    (12, 0): 170,
    (12, 1): 48,
}


def hardware_of(gpu: str | None) -> Hardware:
    """What is known of a GPU by its name in the shipped table, or by a compute capability such as "8.6".

    Raises:
        UsageError: the table has no such GPU.
    """
    if gpu is None:
        return Hardware()
    major, dot, minor = gpu.partition(".")
    if dot and major.isdigit() and minor.isdigit():
        capability = (int(major), int(minor))
    else:
        from autotune.gpus import find_gpu

        first, _, second = find_gpu(gpu).compute_capability.partition(".")
        capability = (int(first), int(second))
    return Hardware(capability, _USUAL_MULTIPROCESSORS.get(capability, 100), gpu)


def outside_allocator_bytes(hardware: Hardware, point: Point) -> int:
    """What a process holds outside the allocator, as shipped: measured on an H200, scaled elsewhere."""
    if point.zero_stage == 3:
        measured = H200_STAGE3_OFFLOAD_BYTES if point.offload != "none" else H200_STAGE3_BYTES
    elif point.offload != "none":
        measured = H200_OFFLOAD_BYTES
    elif point.precision == "fp32":
        measured = H200_FP32_BYTES
    else:
        measured = H200_PLAIN_BYTES
    if hardware.capability[0] == 9:
        return measured
    threads = 2048 if hardware.capability in ((6, 0), (7, 0), (8, 0), (10, 0), (10, 3)) else 1536
    share = hardware.multiprocessors * threads / _H200_RESIDENT_THREADS
    return int(measured * (_FIXED_SHARE + (1 - _FIXED_SHARE) * share)) // MIB * MIB
