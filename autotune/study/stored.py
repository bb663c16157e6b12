"""What is kept of a study, in the newest version of the form: the one place where it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import AwareDatetime, Field, ValidationError

from autotune.errors import EnvironmentProblem
from autotune.study.inputs import StudyInputs
from autotune.study.measured_on import MeasuredOn
from autotune.study.record import Record
from trials.wire import Point, Strict, TrialResult

M = TypeVar("M", bound=Strict)

# The note with the winner's number, and of how many trials it is the winner.
DECIDED_NOTE = "decided"


class StoredHead(Strict):
    """A study without its trials."""

    inputs: StudyInputs
    created_at: AwareDatetime
    opened_at: AwareDatetime = Field(description="when it was last tuned")
    autotune_version: str = Field(description="that created it")
    machine: MeasuredOn | None = Field(description="None: not recorded")
    notes: dict[str, Any] = Field(description="by key, JSON values")


class StoredTrial(Strict):
    """A trial that is over, or (without a result) one that runs."""

    number: int = Field(ge=0)
    point: Point
    predicted: dict[str, Any] | None
    result: TrialResult | None
    started_at: AwareDatetime
    finished_at: AwareDatetime | None

    def record(self) -> Record:
        """The trial as everything outside the storage sees it."""
        return Record(**{name: getattr(self, name) for name in type(self).model_fields})


class StoredConfirmation(Strict):
    """A further measurement of a point."""

    number: int = Field(ge=0)
    point: Point
    result: TrialResult
    finished_at: AwareDatetime

    def record(self) -> Record:
        """The confirmation as everything outside the storage sees it."""
        return Record(
            number=self.number,
            point=self.point,
            result=self.result,
            predicted=None,
            started_at=self.finished_at,
            finished_at=self.finished_at,
        )


def checked(model: type[M], values: Mapping[str, Any], where: str) -> M:
    """The values as the model.

    Args:
        model: one of the above.
        values: of the newest version.
        where: what they are in the user's words, for messages.

    Raises:
        EnvironmentProblem: they hold what this autotune does not know, or are damaged.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        words, is_newer = fault(error)
        if is_newer:
            raise EnvironmentProblem(
                f"{where} was written by a newer version of autotune: {words}", "upgrade autotune"
            ) from None
        raise EnvironmentProblem(
            f"{where} is damaged, or was written by another version of autotune: {words}",
            "upgrade autotune, or take it from a backup",
        ) from None


def fault(error: ValidationError) -> tuple[str, bool]:
    """What is wrong with some values in words, and whether it is that they hold unknown fields."""
    errors = error.errors(include_url=False, include_input=False)
    unknown = [one for one in errors if one["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]
    field = ".".join(str(part) for part in first["loc"])
    if unknown:
        return f"it holds {field}, which this one does not know", True
    if first["type"] == "missing":
        return f"{field} is missing", False
    return f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}", False
