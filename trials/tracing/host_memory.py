"""Host memory in a trace: large CPU tensors are address space that is never touched.

So a 7B optimizer state costs nothing.
"""

from __future__ import annotations

import mmap
from typing import Any

import torch

# Linux's value; Python's mmap module does not name it.
MAP_NORESERVE = 0x4000
# CPU tensors above this many elements are never computed, only accounted for.
LARGE_HOST_ELEMENTS = 1 << 14


def host_tensor(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor whose memory is address space only, until it is written."""
    count = 1
    for extent in shape:
        count *= extent
    nbytes = count * dtype.itemsize
    if count <= LARGE_HOST_ELEMENTS:
        return torch.zeros(shape, dtype=dtype)
    area = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    return torch.frombuffer(area, dtype=dtype, count=count).view(shape)
