"""A study as a whole, apart from any storage: what travels, and how a storage gives and takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import optuna
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import RDBStorage

from autotune.errors import EnvironmentProblem, UsageError
from autotune.study.identity import (
    CONFIRMATION,
    IMPORTED,
    IMPORTING,
    SCHEMA,
    checked_name,
    new_study,
    read_head,
    was_left_half_imported,
    write_head,
)
from autotune.study.measured_on import machine_of_results
from autotune.study.owner import this_process
from autotune.study.storage import attempt, connect
from autotune.study.storage_url import redact
from autotune.study.stored import StoredConfirmation, StoredHead, StoredTrial
from autotune.study.study import Study
from autotune.study.trial_codec import missing_trial, now_text, restored_confirmation, restored_trial

# Which process tunes a study is no part of it.
OWNER_NOTE = "owner"
_URL = re.compile(r"[A-Za-z][\w+.-]*://\S+")


@dataclass(frozen=True)
class Document:
    """A study with its trials, in the newest version of the form.

    Attributes:
        name: the study's.
        head: inputs, times, machine, notes.
        trials: those that are over, by number.
        confirmations: oldest first.
    """

    name: str
    head: StoredHead
    trials: tuple[StoredTrial, ...]
    confirmations: tuple[StoredConfirmation, ...]

    def is_same(self, other: Document) -> bool:
        """Whether both hold the same measurements of the same thing, whatever they are called."""
        return self._measured() == other._measured()

    def _measured(self) -> str:
        # As text, in which a loss that is not a number equals itself.
        parts = [self.head.inputs, *self.trials, *self.confirmations]
        return json.dumps([part.model_dump(mode="json") for part in parts], sort_keys=True)


def document_of(study: Study) -> Document:
    """The study as it stands; trials that run are left out, and so is whatever might be a secret.

    Raises:
        EnvironmentProblem: the storage does not work.
    """
    trials = study.stored_trials()
    head = study.head()
    results = [trial.result for trial in trials if trial.result is not None]
    notes = {
        key: redact_urls(value) if isinstance(value, str) else value
        for key, value in head.notes.items()
        if key != OWNER_NOTE
    }
    return Document(
        name=study.name,
        head=head.model_copy(update={"notes": notes, "machine": head.machine or machine_of_results(results)}),
        trials=trials,
        confirmations=study.stored_confirmations(),
    )


def store(document: Document, storage_url: str, name: str | None = None) -> bool:
    """Writes a study into a storage: all of it or, whatever happens meanwhile, nothing that can be seen.

    Args:
        document: the study.
        storage_url: where to.
        name: what it is called there; None: as before.

    Returns:
        False where the same study was there already, and nothing was done.

    Raises:
        UsageError: there is another study of this name.
        EnvironmentProblem: the storage does not work.
    """
    name = document.name if name is None else checked_name(name)
    document = replace(document, name=name)
    storage = connect(storage_url, create=True)
    assert storage is not None
    if _is_there(document, storage_url, storage):
        return False
    try:
        study = attempt(storage_url, lambda: new_study(storage, name))
    except DuplicatedStudyError:
        raise EnvironmentProblem(
            f"another process has just begun a study {name}", "try again when it is done"
        ) from None
    mark = this_process() | {"at": now_text()}
    try:
        attempt(storage_url, lambda: study.set_user_attr(IMPORTING, mark))
        _fill(document, storage_url, storage, study)
        # Optuna's storages delete no attribute: who brought it in, and where, is at least not kept.
        attempt(storage_url, lambda: study.set_user_attr(IMPORTING, IMPORTED))
    except BaseException:
        attempt(storage_url, lambda: optuna.delete_study(study_name=name, storage=storage))
        raise
    return True


def redact_urls(text: str) -> str:
    """A text with *** for the passwords in its URLs."""
    return _URL.sub(lambda match: redact(match.group()), text)


def _is_there(document: Document, storage_url: str, storage: RDBStorage) -> bool:
    """Whether the study is there already; what a killed import left behind is removed.

    Raises:
        UsageError: another study has the name.
    """
    name = document.name
    found = {study.study_name: study for study in attempt(storage_url, storage.get_all_studies)}.get(name)
    if found is None:
        return False
    taken = UsageError(
        f"{redact(storage_url)} has another study {name}: nothing was changed",
        "give this one another name: --as NAME",
    )
    if SCHEMA in found.user_attrs:
        read_head(found.user_attrs, name)
        if document.is_same(document_of(Study.load(storage_url, name))):
            return True
        raise taken
    if not was_left_half_imported(found.user_attrs, name):
        raise taken
    attempt(storage_url, lambda: optuna.delete_study(study_name=name, storage=storage))
    return False


def _fill(document: Document, storage_url: str, storage: RDBStorage, study: optuna.Study) -> None:
    for template in _templates(document.trials, document.head.inputs.budget_bytes):
        attempt(storage_url, partial(storage.create_new_trial, study._study_id, template))
    for position, confirmation in enumerate(document.confirmations):
        key = f"{CONFIRMATION}{confirmation.finished_at.isoformat()}:{position:08x}"
        attempt(storage_url, partial(study.set_user_attr, key, restored_confirmation(confirmation)))
    attempt(storage_url, lambda: write_head(study, document.head))


def _templates(trials: Sequence[StoredTrial], budget_bytes: int) -> list[optuna.trial.FrozenTrial]:
    """The trials in order, with one that stands for each number that is missing."""
    templates: list[optuna.trial.FrozenTrial] = []
    for trial in trials:
        templates += [missing_trial() for _ in range(trial.number - len(templates))]
        templates.append(restored_trial(trial, budget_bytes))
    return templates
