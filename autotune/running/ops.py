"""Which of DeepSpeed's compiled operators a set of configurations needs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from autotune.running.machine import Machine
from trials.wire import Point


def needed_ops(points: Iterable[Point], machine: Machine) -> frozenset[str]:
    """Names for `TrialRunner.prepare`, of what the machine can compile."""
    needed = set()
    if machine.device == "cpu":
        # DeepSpeed builds it in every process group it starts on a CPU.
        needed.add("shared_memory_communication")
    for point in points:
        if point.offload != "none":
            needed.add("cpu_adam")
        elif point.optimizer == "adamw" and not machine.torch_adam:
            needed.add("fused_adam")
        if point.offload.startswith("nvme_"):
            needed.add("async_io")
    return frozenset(needed) if machine.host_compiler else frozenset()


def operators_folder() -> Path:
    """Where torch keeps what it compiles for DeepSpeed, told without importing it."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    if given is not None:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "torch_extensions"
