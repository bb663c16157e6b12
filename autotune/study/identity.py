"""A study's identity in its storage: inputs and the version of the form, written once, checked when read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage

from autotune import __version__
from autotune.errors import EnvironmentProblem, UsageError
from autotune.study.inputs import StudyInputs
from autotune.study.migrations import SCHEMA_VERSION, upgraded
from autotune.study.owner import is_alive
from autotune.study.stored import StoredHead, checked

# As optuna-dashboard writes it at its axes.
METRIC = "tokens per second"
LONGEST_NAME = 255

INPUTS = "inputs"
SCHEMA = "autotune_schema"
VERSION = "autotune_version"
CREATED_AT = "created_at"
OPENED_AT = "opened_at"
MACHINE = "machine"
IMPORTING = "autotune_importing"
IMPORTED = "done"
CONFIRMATION = "confirmation:"
NOTE = "note:"


def read_head(attrs: Mapping[str, Any], name: str) -> StoredHead:
    """What a study's attributes say of it, whichever version wrote them.

    Raises:
        EnvironmentProblem: a newer autotune wrote them, or they are damaged.
    """
    where = f"the study {name}"
    names = {"inputs": INPUTS, "created_at": CREATED_AT, "autotune_version": VERSION, "machine": MACHINE}
    values = {field: attrs[key] for field, key in names.items() if key in attrs}
    values["opened_at"] = last_opened(attrs)
    values["notes"] = {key.removeprefix(NOTE): attrs[key] for key in attrs if key.startswith(NOTE)}
    return checked(StoredHead, upgraded("head", values, attrs.get(SCHEMA), where), where)


def last_opened(attrs: Mapping[str, Any]) -> Any:
    """When a study was last tuned, as text."""
    return attrs.get(OPENED_AT, attrs.get(CREATED_AT))


def bring_up_to_date(study: optuna.Study, name: str) -> None:
    """Writes a study's head in the newest version of the form, where an older autotune wrote it."""
    attrs = study.user_attrs
    if attrs[SCHEMA] == SCHEMA_VERSION:
        return
    write_head(study, read_head(attrs, name))


def write_head(study: optuna.Study, head: StoredHead) -> None:
    """Writes all that is kept of a study beside its trials and confirmations."""
    values = head.model_dump(mode="json")
    for key, value in _shown(head.inputs).items():
        study.set_user_attr(key, value)
    for key, value in values["notes"].items():
        study.set_user_attr(NOTE + key, value)
    for key, field in (
        (INPUTS, "inputs"),
        (VERSION, "autotune_version"),
        (CREATED_AT, "created_at"),
        (OPENED_AT, "opened_at"),
        (MACHINE, "machine"),
    ):
        study.set_user_attr(key, values[field])
    # Last: a study without it is one whose making was interrupted.
    study.set_user_attr(SCHEMA, SCHEMA_VERSION)


def _shown(inputs: StudyInputs) -> dict[str, Any]:
    """What a person wants to see of a study first; for no program."""
    return {
        "model": inputs.model,
        "method": inputs.method,
        "budget GiB": round(inputs.budget_bytes / 2**30, 3),
        "tokens per sequence": inputs.seq_len,
        "measured on": inputs.gpu_name or inputs.device,
    }


def checked_name(name: str) -> str:
    """The name a user chose for a study, if it is one.

    Raises:
        UsageError: it is empty or too long, or has characters that no terminal shows.
    """
    if not name.isprintable():
        raise UsageError(
            f"a study's name has no control characters: {name!r}", "leave --study out for a good one"
        )
    if not name.strip() or len(name) > LONGEST_NAME:
        raise UsageError(
            f"a study's name has 1 to {LONGEST_NAME} characters", "leave --study out for a good one"
        )
    return name


def create_study(storage: RDBStorage, name: str, inputs: StudyInputs) -> None:
    """Creates the study if there is none; completes it if a process died while it did so.

    Raises:
        UsageError: there is one of this name that autotune did not make.
    """
    try:
        study = new_study(storage, name)
    except DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler())
    if SCHEMA in study.user_attrs:
        bring_up_to_date(study, name)
        return
    if was_left_half_imported(study.user_attrs, name):
        optuna.delete_study(study_name=name, storage=storage)
        study = new_study(storage, name)
    elif study.get_trials(deepcopy=False):
        raise UsageError(f"the study {name} was not made by autotune", "name another one")
    now = datetime.now(UTC)
    head = StoredHead(
        inputs=inputs, created_at=now, opened_at=now, autotune_version=__version__, machine=None, notes={}
    )
    write_head(study, head)


def was_left_half_imported(attrs: Mapping[str, Any], name: str) -> bool:
    """Whether a study that is not whole is what a killed import left behind.

    Raises:
        EnvironmentProblem: a live process is importing it.
    """
    importing = attrs.get(IMPORTING)
    if importing in (None, IMPORTED):
        return False
    if is_alive(importing, datetime.fromisoformat(importing["at"]), datetime.now(UTC)):
        raise EnvironmentProblem(
            f"process {importing['pid']} on {importing['host']} is bringing in the study {name}",
            "try again when it is done",
        )
    return True


def new_study(storage: RDBStorage, name: str) -> optuna.Study:
    """An empty study of Optuna's, not yet one of ours.

    Raises:
        DuplicatedStudyError: there is one of this name.
    """
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", sampler=RandomSampler()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study.set_metric_names([METRIC])
    return study
