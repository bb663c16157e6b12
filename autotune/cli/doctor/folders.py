"""The folders that are written to: studies, logs, checkpoints, compiled operators."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from autotune.cli.doctor.check import Check
from autotune.errors import EnvironmentProblem
from autotune.sizes import format_size
from autotune.tuning.folders import check_writable

LITTLE_DISK_BYTES = 20 * 2**30


def folder_checks() -> list[Check]:
    """The user's data folder and the cache of compiled operators."""
    from autotune.study.storage_url import default_folder

    return [
        folder_check("data folder", default_folder(), "set XDG_DATA_HOME to a folder that can be written"),
        folder_check(
            "compiled operators",
            operators_folder(),
            "set TORCH_EXTENSIONS_DIR to a folder that can be written",
        ),
    ]


def operators_folder() -> Path:
    """Where torch keeps what it compiles for DeepSpeed."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path(cache) / "torch_extensions")


def folder_check(name: str, folder: Path, hint: str) -> Check:
    """Whether a folder can be written, or made, and how much room it has; nothing is left behind."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        check_writable(existing, "anything")
    except EnvironmentProblem as problem:
        return Check(name, "fail", problem.message, hint)
    free = shutil.disk_usage(existing).free
    found = f"{folder}, {format_size(free)} free"
    if free < LITTLE_DISK_BYTES:
        return Check(name, "warn", found, "confirming a winner saves a checkpoint there: make room")
    return Check(name, "ok", found)
