"""The study that a command is about: by name, or the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.study import Study


def find_study(storage: str | None, name: str | None) -> Study:
    """Open a study for reading.

    Args:
        storage: URL; None: the user's data folder.
        name: the study's name; None: the last one.

    Raises:
        UsageError: there is no such study, or none at all.
        EnvironmentProblem: the storage cannot be read.
    """
    from autotune.study import Study, default_storage_url, latest_study, redact

    url = storage or default_storage_url()
    name = name or latest_study(url)
    if name is None:
        raise UsageError(
            f"there is no study in {redact(url)}", "'autotune run' makes one; --storage names another place"
        )
    return Study.load(url, name)
