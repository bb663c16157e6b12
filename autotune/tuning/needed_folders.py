"""The folders outside a study that a run writes to, tried before anything heavy starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from autotune.errors import EnvironmentProblem
from autotune.tuning.folders import check_can_be_made
from autotune.tuning.task import Task

DATA_HINT = "set XDG_DATA_HOME to a folder that can be written"
# As deepspeed 0.19.8 names them.
OPERATOR_FOLDERS = ("cpu_adam", "fused_adam", "deepspeed_shm_comm", "async_io")
OPERATORS_HINT = "set TORCH_EXTENSIONS_DIR to a folder that can be written"


def make_data_folder(folder: Path, purpose: str) -> None:
    """Make a folder below the user's data folder, and see that it can be written.

    Args:
        folder: the folder.
        purpose: what is kept in it, for the message.

    Raises:
        EnvironmentProblem: it cannot be made or written.
    """
    check_can_be_made(folder, purpose, DATA_HINT)
    folder.mkdir(parents=True, exist_ok=True)


def check_operators_folder(task: Task) -> None:
    """See that DeepSpeed's operators can be compiled and loaded, where the task's points need any.

    Loading one that is compiled already writes too: torch locks its folder meanwhile.

    Raises:
        EnvironmentProblem: the folder cannot be made or written.
    """
    from autotune.running.ops import needed_ops, operators_folder

    if not needed_ops((point for stage in task.stages for point in stage.points), task.machine):
        return
    root, purpose = operators_folder(), "DeepSpeed's compiled operators"
    check_can_be_made(root, purpose, OPERATORS_HINT)
    # One of them may be another user's. Without the variable there is one more level, by version.
    python = f"py{sys.version_info.major}{sys.version_info.minor}*"
    for name in OPERATOR_FOLDERS:
        for folder in (*root.glob(name), *root.glob(f"{python}/{name}")):
            if not os.access(folder, os.W_OK):
                raise EnvironmentProblem(
                    f"cannot write {purpose} to {folder}: Permission denied", OPERATORS_HINT
                )
