"""Host memory: pinned buffers as PyTorch rounds them, pageable ones, and the process itself."""

from __future__ import annotations

import numpy as np

from autotune.prediction.events import HOST_STREAM, MANAGED_STREAM, PINNED_STREAM, Events
from trials.wire import Point

MIB = 1 << 20

# Resident memory of a trial's process before anything is trained: torch, transformers, DeepSpeed, CUDA's own.
# Measured on an H200 machine over 46 runs; ZeRO's communicators and hooks keep more.
PROCESS_BYTES = 1765 * MIB
# Until the first step, when CUDA has loaded few kernels.
SETUP_PROCESS_BYTES = 1330 * MIB
ZERO12_EXTRA_BYTES = 120 * MIB
ZERO3_EXTRA_BYTES = 140 * MIB


def pinned_block_bytes(size_bytes: int) -> int:
    """What `CachingHostAllocator` takes for a pinned tensor: the next power of two."""
    return 1 << max(0, size_bytes - 1).bit_length()


def process_bytes(point: Point) -> int:
    """The import footprint of a trial's process."""
    if point.zero_stage == 3:
        return PROCESS_BYTES + ZERO3_EXTRA_BYTES
    if point.zero_stage and point.offload == "none":
        return PROCESS_BYTES + ZERO12_EXTRA_BYTES
    return PROCESS_BYTES


def host_peak_bytes(events: Events, point: Point) -> int:
    """The largest resident host memory of one process."""
    before, afterwards = events.host_peaks
    base = process_bytes(point)
    return max(base, SETUP_PROCESS_BYTES + before, base + afterwards)


def host_peaks(events: Events) -> tuple[int, int]:
    """The most that tensors hold of host memory before the first optimizer step, and from there on, in bytes.

    Pinned blocks are kept by their allocator when they are freed and serve the next request of their size
    class.
    """
    ids, sizes, streams = events.ids, events.sizes, events.streams
    born = np.flatnonzero((ids > 0) & (streams < 0))
    freed = np.flatnonzero(ids < 0)
    freed = freed[streams[events.births[-ids[freed]]] < 0]
    order = np.sort(np.concatenate([born, freed]))
    begun = next((index for index, text in events.marks if text == "step 0"), len(ids))
    pageable = pinned = 0
    peaks = [0, 0]
    spare: dict[int, int] = {}
    for index in order.tolist():
        ident = int(ids[index])
        birth = index if ident > 0 else int(events.births[-ident])
        size, stream = int(sizes[birth]), int(streams[birth])
        if stream == PINNED_STREAM:
            block = pinned_block_bytes(size)
            if ident < 0:
                spare[block] = spare.get(block, 0) + 1
            elif spare.get(block, 0):
                spare[block] -= 1
            else:
                pinned += block
        elif stream in (HOST_STREAM, MANAGED_STREAM):
            pageable += size if ident > 0 else -size
        part = int(index >= begun)
        peaks[part] = max(peaks[part], pinned + pageable)
    return peaks[0], peaks[1]
