"""DeepSpeed's compiled operators: built once per machine, before any trial, and charged to none.

Checked with deepspeed 0.19.8.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

# Our names for the operators, and DeepSpeed's builder of each.
BUILDERS = {
    "cpu_adam": "CPUAdamBuilder",
    "fused_adam": "FusedAdamBuilder",
    "shared_memory_communication": "ShareMemCommBuilder",
    "async_io": "AsyncIOBuilder",
}

YOUNG_LOCK_SECONDS = 5.0


def build_ops(names: Sequence[str], device: str, report: Callable[[dict[str, Any]], None]) -> dict[str, str]:
    """Compile (or find compiled) operators.

    Args:
        names: keys of `BUILDERS`.
        device: "cuda" or "cpu".
        report: called with a note before and after each build; what is built already is loaded in silence.

    Returns:
        What could not be built, with the reason in one line.
    """
    if device == "cuda":
        import torch

        # A value such as "9.0a" from the environment ends in a ValueError inside DeepSpeed's builder.
        major, minor = torch.cuda.get_device_capability()
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
    from deepspeed.accelerator import get_accelerator

    remove_stale_locks(extensions_folder())
    failed: dict[str, str] = {}
    for name in names:
        builder = get_accelerator().create_op_builder(BUILDERS[name])
        if builder is None:
            failed[name] = "not available for this device"
            continue
        begun, built = time.monotonic(), is_built(builder)
        if not built:
            report(
                {"event": "note", "text": f"building DeepSpeed's {name} (about a minute, once per machine)"}
            )
        try:
            builder.load(verbose=False)
        except Exception as error:
            failed[name] = _reason(name, error)
            continue
        if not built:
            seconds = time.monotonic() - begun
            report({"event": "note", "text": f"DeepSpeed's {name} is ready ({seconds:.0f} s)"})
    return failed


def load_ops(names: Collection[str]) -> None:
    """Load operators that are compiled already, so that forked trials have them from the start.

    A trial that loads them itself holds torch's build lock for a moment, and one that dies in that moment
    (at a memory limit, say) leaves the lock behind for ever.
    """
    from deepspeed.accelerator import get_accelerator

    for name in names:
        builder = get_accelerator().create_op_builder(BUILDERS[name])
        if builder is not None:
            builder.load(verbose=False)


def is_built(builder: Any) -> bool:
    """Whether an operator only has to be loaded: it came with DeepSpeed, or is compiled from these sources.

    Args:
        builder: DeepSpeed's, of one operator.
    """
    from deepspeed.git_version_info import installed_ops

    if installed_ops.get(builder.name, False):
        return True
    compiled = extensions_folder() / builder.name / f"{builder.name}.so"
    if not compiled.is_file():
        return False
    try:
        rules = (compiled.parent / "build.ninja").read_text()
        # Asked of ninja: what an upgrade has changed, or another ninja has built, is compiled anew.
        asked = subprocess.run(["ninja", "-n"], cwd=compiled.parent, capture_output=True, text=True)
    except OSError:
        return False
    # Another environment's sources lie elsewhere, and torch writes the rules anew before it builds.
    own = all(str(builder.deepspeed_src_path(source)) in rules for source in builder.sources())
    return own and "no work to do" in asked.stdout


def extensions_folder() -> Path:
    """Where torch keeps compiled operators, one folder each."""
    from torch.utils.cpp_extension import _get_build_directory

    # Private, but the only place that knows how torch names it; the operator's own folder is made as it is
    # asked.
    return Path(_get_build_directory("deepspeed_locks", verbose=False)).parent


def is_compiled(name: str) -> bool:
    """Whether DeepSpeed's operator of that name is there: came with DeepSpeed, or is kept by torch."""
    from deepspeed.git_version_info import installed_ops

    return bool(installed_ops.get(name)) or any(extensions_folder().glob(f"{name}/*.so"))


def remove_stale_locks(folder: Path) -> list[Path]:
    """Remove build locks that no living process holds open: torch would wait for them for ever.

    A lock younger than a few seconds is left alone: between its creation and our look at the processes it
    may not
    show yet. A folder shared between machines could hide the lock's owner; torch's lock has no notion of
    that either.

    Returns:
        The locks that were removed.
    """
    removed = []
    for lock in folder.glob("*/lock"):
        try:
            age = time.time() - lock.stat().st_mtime
            if age > YOUNG_LOCK_SECONDS and not _held(lock):
                lock.unlink()
                removed.append(lock)
        except FileNotFoundError:
            continue
    return removed


def _held(lock: Path) -> bool:
    target = str(lock.resolve())
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(descriptor.readlink()) == target:
                return True
        except OSError:
            # Another user's process, or one that ended meanwhile.
            continue
    return False


def _reason(name: str, error: Exception) -> str:
    if name == "async_io":
        return "libaio is missing: install libaio-dev (Debian, Ubuntu) or libaio-devel (Fedora)"
    line = " ".join(str(error).split())
    return line[:300] or type(error).__name__
