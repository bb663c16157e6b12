"""The folders that are written to: studies, logs, checkpoints, compiled operators."""

from __future__ import annotations

import shutil
from pathlib import Path

from autotune.cli.doctor.check import Check
from autotune.errors import EnvironmentProblem
from autotune.sizes import format_size
from autotune.tuning.folders import check_writable
from autotune.tuning.needed_folders import DATA_HINT, OPERATORS_HINT

LITTLE_DISK_BYTES = 20 * 2**30


def folder_checks() -> list[Check]:
    """The user's data folder and the cache of compiled operators."""
    from autotune.running.ops import operators_folder
    from autotune.study.storage_url import default_folder

    return [
        folder_check("data folder", default_folder(), DATA_HINT),
        folder_check("compiled operators", operators_folder(), OPERATORS_HINT),
    ]


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
