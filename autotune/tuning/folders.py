"""The folders of a study: logs, the trials' own files, and the winner."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from autotune.errors import EnvironmentProblem
from autotune.study.storage_url import storage_mark

EXPORTS = Path("autotune-out")
# Written as %2F and so on, and so is the sign itself; @ stands before a storage's mark.
UNSAFE = frozenset("/\\%@") | {chr(code) for code in (*range(32), 127)}
# Of bytes; a name in a folder has at most 255, and files beside it get endings.
LONGEST_FOLDER_NAME = 200


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


def trial_id(position: int, number: int, kind: str = "trial") -> str:
    """The name of a trial and of its log: by the number that users see, and unique within the study.

    Args:
        position: the number that users see.
        number: in the storage, from 0; after a trial that was interrupted the two part.
        kind: `trial`, or `confirm` for a winner's longer run.
    """
    return f"{kind}-{position}" if position == number + 1 else f"{kind}-{position}-{number + 1}"


def study_folders(data_folder: Path, study: str, storage_url: str, export_dir: Path | None) -> Folders:
    """The folders of a study under the user's data folder.

    Args:
        data_folder: the user's.
        study: its name, which studies of other storages may have too.
        storage_url: where it is kept.
        export_dir: the winner's folder; None: by the study's name.
    """
    mark = storage_mark(storage_url)
    name = folder_name(study, f"@{mark}" if mark else "")
    return Folders(
        logs=data_folder / "logs" / name,
        work=data_folder / "work" / name,
        export=export_dir if export_dir is not None else default_export_folder(study),
    )


def default_export_folder(study: str) -> Path:
    """Where a study's winner goes when nobody says."""
    return EXPORTS / folder_name(study)


def folder_name(study: str, ending: str = "") -> str:
    """One name in a folder for a study of any name: never a path, and never that of another study.

    What a study's work folder holds is deleted, so that a name such as `../mine` must not lead anywhere.

    Args:
        study: its name.
        ending: plain letters that the name ends in.
    """
    name = "".join(quote(one, safe="") if one in UNSAFE else one for one in study)
    if name.strip(".") == "":
        name = name.replace(".", "%2E")
    encoded, longest = os.fsencode(name), LONGEST_FOLDER_NAME - len(ending)
    if len(encoded) <= longest:
        return name + ending
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: longest - 17].decode(errors='ignore')}-{digest}{ending}"


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


def check_can_be_made(folder: Path, purpose: str, hint: str) -> None:
    """Whether a folder could be made and written to: what is made for that is removed again.

    Raises:
        EnvironmentProblem: it cannot.
    """
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {purpose} to {folder}: {error.strerror or error}", hint
        ) from error
    finally:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
