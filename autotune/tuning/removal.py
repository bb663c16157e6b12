"""Removing studies, with the logs that belong to them, but never one that is being tuned."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.tuning.folders import study_folders
from autotune.tuning.ownership import NOTE, Owner

if TYPE_CHECKING:
    from autotune.study import StudySummary

# Another host's processes cannot be looked at; a study that was taken longer ago is nobody's any more.
FOREIGN_LIFETIME = timedelta(hours=24)


def busy_words(summary: StudySummary, now: datetime) -> str | None:
    """Who tunes a study now, in words; None where nobody does.

    Args:
        summary: the study's.
        now: aware.
    """
    note = summary.notes.get(NOTE)
    owner = Owner(**note) if note else None
    running = owner.is_running() if owner else False
    if owner is not None and running:
        return f"process {owner.pid} is tuning it"
    if owner is not None and running is None and now - summary.opened_at < FOREIGN_LIFETIME:
        return f"process {owner.pid} on {owner.host} may be tuning it, which cannot be seen from here"
    return "another process is running a trial of it" if summary.running else None


def refuse_busy(summaries: Sequence[StudySummary], now: datetime) -> None:
    """Raises where one of the studies is being tuned.

    Raises:
        UsageError: the first that is.
    """
    for summary in summaries:
        words = busy_words(summary, now)
        if words is not None:
            raise UsageError(
                f"the study {summary.name} cannot be deleted now: {words}", "wait for it, or stop it"
            )


def remove(storage_url: str, names: Sequence[str]) -> None:
    """Delete studies with all their trials; and the trials' logs that are on this machine.

    Raises:
        EnvironmentProblem: the storage does not work.
    """
    from autotune.study.deletion import delete_study
    from autotune.study.storage_url import default_folder

    for name in names:
        delete_study(storage_url, name)
        _remove_folders(default_folder(), name, storage_url)


def _remove_folders(data_folder: Path, name: str, storage_url: str) -> None:
    folders = study_folders(data_folder, name, storage_url, None)
    for folder in (folders.logs, folders.work):
        if folder.resolve().is_relative_to(data_folder.resolve()) and folder.name not in ("", ".", ".."):
            shutil.rmtree(folder, ignore_errors=True)
