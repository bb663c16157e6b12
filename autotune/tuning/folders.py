"""The folders of a study: logs, the trials' own files, and the winner."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import EnvironmentProblem


@dataclass(frozen=True)
class Folders:
    """Where a study's files go.

    Attributes:
        logs: one file per trial; stays.
        work: what trials write for themselves, such as a checkpoint; emptied after each.
        export: the winner's folder.
    """

    logs: Path
    work: Path
    export: Path

    def log_of(self, trial_id: str) -> Path:
        """The log file of one trial."""
        return self.logs / f"{trial_id}.log"

    def fresh_work(self) -> Path:
        """An empty folder for the next trial."""
        self.clear_work()
        self.work.mkdir(parents=True)
        return self.work

    def clear_work(self) -> None:
        """Remove what trials left, also those of a killed run."""
        shutil.rmtree(self.work, ignore_errors=True)
        with contextlib.suppress(OSError):
            # Only if no other study's trial is running.
            self.work.parent.rmdir()


def study_folders(data_folder: Path, study: str, export_dir: Path | None) -> Folders:
    """The folders of the study of this name under the user's data folder."""
    return Folders(
        logs=data_folder / "logs" / study,
        work=data_folder / "work" / study,
        export=export_dir if export_dir is not None else Path("autotune-out") / study,
    )


def check_writable(folder: Path, purpose: str) -> None:
    """Make the folder and write to it once, before a night is spent.

    Raises:
        EnvironmentProblem: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvironmentProblem(
            f"cannot write {purpose} to {folder}: {reason}", "give another folder"
        ) from error
