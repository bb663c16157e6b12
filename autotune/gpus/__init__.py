"""The shipped table of GPUs: true usable memory, rates and what they support."""

from __future__ import annotations

from autotune.gpus.find import find_gpu
from autotune.gpus.gpu import Gpu
from autotune.gpus.table import list_gpus

__all__ = ["Gpu", "find_gpu", "list_gpus"]
