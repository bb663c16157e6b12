"""Deleting a study by its name."""

from __future__ import annotations

import contextlib

import optuna

from autotune.study.storage import attempt, connect


def delete_study(storage_url: str, name: str) -> None:
    """Removes a study and all its trials from a storage; one that is not there is gone already.

    Raises:
        EnvironmentProblem: the storage does not work.
    """
    storage = connect(storage_url, create=False)
    if storage is None:
        return
    with contextlib.suppress(KeyError):
        attempt(storage_url, lambda: optuna.delete_study(study_name=name, storage=storage))
