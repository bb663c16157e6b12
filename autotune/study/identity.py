"""A study's identity in its storage: inputs and the version of the form, written once, checked when read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage
from pydantic import ValidationError

from autotune import __version__
from autotune.errors import EnvironmentProblem, UsageError
from autotune.study.inputs import StudyInputs
from autotune.study.trial_codec import now_text

SCHEMA_VERSION = 1
# As optuna-dashboard writes it at its axes.
METRIC = "tokens per second"
LONGEST_NAME = 255

INPUTS = "inputs"
SCHEMA = "autotune_schema"
VERSION = "autotune_version"
CREATED_AT = "created_at"
OPENED_AT = "opened_at"


def read_inputs(attrs: Mapping[str, Any], name: str) -> StudyInputs:
    """A study's inputs from its attributes.

    Raises:
        EnvironmentProblem: a newer autotune wrote them.
    """
    problem = EnvironmentProblem(
        f"the study {name} was written by another version of autotune ({attrs.get(VERSION, 'unknown')})",
        "upgrade autotune, or begin another study",
    )
    if attrs[SCHEMA] != SCHEMA_VERSION:
        raise problem
    try:
        return StudyInputs.model_validate(attrs[INPUTS])
    except ValidationError:
        raise problem from None


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
        UsageError: it is empty or too long.
    """
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
        study = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", sampler=RandomSampler()
        )
    except DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler())
    if SCHEMA in study.user_attrs:
        return
    if study.get_trials(deepcopy=False):
        raise UsageError(f"the study {name} was not made by autotune", "name another one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study.set_metric_names([METRIC])
    for key, value in _shown(inputs).items():
        study.set_user_attr(key, value)
    study.set_user_attr(INPUTS, inputs.model_dump(mode="json"))
    study.set_user_attr(VERSION, __version__)
    study.set_user_attr(CREATED_AT, now_text())
    # Last: a study without it is one whose making was interrupted.
    study.set_user_attr(SCHEMA, SCHEMA_VERSION)
