"""How a trial is written into Optuna's storage, and read back.

Parameters and user attributes are for people (optuna-dashboard shows them): real names and values. What is
needed to rebuild a `Record` exactly is kept as JSON in system attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import EnvironmentProblem
from autotune.space.fields import Field, point_fields
from autotune.study.migrations import FIRST_VERSION, SCHEMA_VERSION, upgraded
from autotune.study.owner import is_alive
from autotune.study.record import Record
from autotune.study.states import verdict
from autotune.study.stored import StoredConfirmation, StoredTrial, checked
from trials.wire import Point, TrialResult

POINT = "autotune:point"
PREDICTED = "autotune:predicted"
RESULT = "autotune:result"
OWNER = "autotune:owner"
STARTED_AT = "autotune:started_at"
FINISHED_AT = "autotune:finished_at"
SCHEMA = "autotune:schema"

LARGEST_INTEGER = 2**40
ABANDONED = "abandoned"
GIB = 2**30


def new_trial(point: Point, predicted: Mapping[str, Any] | None, owner: Mapping[str, Any]) -> FrozenTrial:
    """A trial that begins now, to be written in one transaction: a kill leaves all of it or nothing."""
    params, distributions = _parameters(point)
    human: dict[str, Any] = {"method": point.method}
    human |= {name: "default" for name in point_fields() if name not in params}
    needed = (predicted or {}).get("required_device_bytes")
    if needed is not None:
        human["predicted GiB"] = _gib(needed)
    return create_trial(
        state=TrialState.RUNNING,
        params=params,
        distributions=distributions,
        user_attrs=human,
        system_attrs={
            POINT: point.model_dump(mode="json"),
            PREDICTED: dict(predicted) if predicted is not None else None,
            OWNER: dict(owner),
            STARTED_AT: now_text(),
            SCHEMA: SCHEMA_VERSION,
        },
    )


def restored_trial(stored: StoredTrial, budget_bytes: int) -> FrozenTrial:
    """A trial that is over, as it was kept elsewhere.

    Args:
        stored: with its result.
        budget_bytes: the study's, to which an out-of-memory is related.
    """
    assert stored.result is not None and stored.finished_at is not None, "it is over"
    told = verdict(stored.result, budget_bytes)
    begun = new_trial(stored.point, stored.predicted, {})
    return create_trial(
        state=told.state,
        value=told.value,
        params=begun.params,
        distributions=begun.distributions,
        user_attrs=begun.user_attrs | summary_attributes(stored.result),
        system_attrs=begun.system_attrs
        | {
            OWNER: None,
            STARTED_AT: stored.started_at.isoformat(),
            FINISHED_AT: stored.finished_at.isoformat(),
            RESULT: encode_result(stored.result),
        },
        constraints=dict(told.constraints),
    )


def missing_trial() -> FrozenTrial:
    """What stands for a trial that was abandoned elsewhere, so that the others keep their numbers."""
    return create_trial(state=TrialState.FAIL, user_attrs={"outcome": ABANDONED})


def summary_attributes(result: TrialResult) -> dict[str, Any]:
    """What a person wants to see of a result beside the value, with units in the names; for no program."""
    sizes = {
        "required GiB": result.required_device_bytes,
        "held GiB": result.device_bytes,
        "host GiB": result.host_peak_bytes,
        "short of GiB": result.oom_short_bytes,
    }
    speeds = {
        "tokens per second, 95% low": result.tokens_per_second_low,
        "tokens per second, 95% high": result.tokens_per_second_high,
    }
    shown: dict[str, Any] = {
        "outcome": str(result.outcome),
        "ended in": str(result.phase).replace("_", " "),
        "why": " ".join(result.message.split()),
    }
    shown |= {name: _gib(size) for name, size in sizes.items() if size}
    shown |= {name: round(speed, 1) for name, speed in speeds.items() if speed is not None}
    if result.setup_seconds is not None:
        shown["seconds to start"] = round(result.setup_seconds, 1)
    return {name: value for name, value in shown.items() if value != ""}


def encode_result(result: TrialResult) -> dict[str, Any]:
    """The result in JSON values; NaN losses stay NaN, which Python's JSON reads back."""
    return result.model_dump(mode="python") | {"outcome": str(result.outcome), "phase": str(result.phase)}


def is_ours(trial: FrozenTrial) -> bool:
    """Whether autotune wrote this trial: a study can be added to from elsewhere."""
    return POINT in trial.system_attrs


def is_over(trial: FrozenTrial) -> bool:
    """Whether it ended with a result (and was not abandoned)."""
    return trial.state.is_finished() and RESULT in trial.system_attrs


def is_pending(trial: FrozenTrial, now: datetime) -> bool:
    """Whether some live process is running it."""
    if trial.state != TrialState.RUNNING:
        return False
    return is_alive(trial.system_attrs[OWNER], _time(trial.system_attrs[STARTED_AT]), now)


def to_record(trial: FrozenTrial, study_name: str) -> Record:
    """The record of a trial that is over or pending.

    Raises:
        EnvironmentProblem: another version wrote it.
    """
    record = to_stored(trial, study_name).record()
    # Its process is just writing the result down.
    return record if is_over(trial) else replace(record, result=None, finished_at=None)


def to_stored(trial: FrozenTrial, study_name: str) -> StoredTrial:
    """A trial that is over, pending or left behind by a process that died, whichever version wrote it.

    Raises:
        EnvironmentProblem: a newer version wrote it, or it is damaged.
    """
    return stored_of(trial.number, trial.system_attrs, study_name)


def stored_of(number: int, attrs: Mapping[str, Any], study_name: str) -> StoredTrial:
    """The same from a trial's number and system attributes."""
    where = f"trial {number + 1} of the study {study_name}"
    finished = RESULT in attrs
    values = {
        "number": number,
        "point": attrs[POINT],
        "predicted": attrs.get(PREDICTED),
        "result": attrs[RESULT] if finished else None,
        "started_at": attrs.get(STARTED_AT),
        "finished_at": attrs.get(FINISHED_AT) if finished else None,
    }
    version = attrs.get(SCHEMA, FIRST_VERSION)
    stored = checked(StoredTrial, upgraded("trial", values, version, where), where)
    if finished and stored.finished_at is None:
        raise EnvironmentProblem(f"{where} is damaged: it has no end", "take it from a backup")
    return stored


def encode_confirmation(number: int, point: Point, result: TrialResult) -> dict[str, Any]:
    """A confirmation in JSON values, finished now."""
    return {
        "number": number,
        "point": point.model_dump(mode="json"),
        "result": encode_result(result),
        "finished_at": now_text(),
        SCHEMA: SCHEMA_VERSION,
    }


def restored_confirmation(stored: StoredConfirmation) -> dict[str, Any]:
    """A confirmation in JSON values, as it was kept elsewhere."""
    values = encode_confirmation(stored.number, stored.point, stored.result)
    return values | {"finished_at": stored.finished_at.isoformat()}


def decode_confirmation(value: Mapping[str, Any], study_name: str) -> StoredConfirmation:
    """Reads a confirmation back, whichever version wrote it.

    Raises:
        EnvironmentProblem: a newer version wrote it, or it is damaged.
    """
    where = f"a confirmation of the study {study_name}"
    values = {name: value[name] for name in value if name != SCHEMA}
    version = value.get(SCHEMA, FIRST_VERSION)
    return checked(StoredConfirmation, upgraded("confirmation", values, version, where), where)


def _gib(size_bytes: int) -> float:
    return round(size_bytes / GIB, 3)


def now_text() -> str:
    """The current time in ISO form, UTC."""
    return datetime.now(UTC).isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _parameters(point: Point) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    params: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}
    for name, field in point_fields().items():
        value = getattr(point, name)
        if value is not None:
            params[name] = value
            distributions[name] = _distribution(field)
    return params, distributions


def _distribution(field: Field) -> BaseDistribution:
    # The same for every trial and space: Optuna allows no categorical whose choices change within a study.
    if field.choices:
        return CategoricalDistribution(field.choices)
    if field.kind == "fraction":
        assert field.low is not None and field.high is not None
        return FloatDistribution(field.low, field.high)
    low = int(field.low or 0)
    return IntDistribution(low, LARGEST_INTEGER, log=low > 0)
