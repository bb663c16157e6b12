"""The rows of the output: one JSON object a line, appended as they come.

Kinds: `machine` (one a call), `found` (a contender's result on a case) and `measured` (a winner's point,
measured by a trial of ours).
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.json_rows import Row
from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.contender import Found
from trials.wire import Point, TrialResult

_LEFT_OUT = {"ds_config", "losses", "lora_targets", "versions"}


def found_row(case: Case, setting: Setting, contender: str, found: Found) -> Row:
    """A contender's result as a row."""
    return {
        "kind": "found",
        "case": case.name,
        "setting": setting.model_dump(mode="json"),
        "contender": contender,
        **found.model_dump(mode="json"),
    }


def measured_row(case: Case, setting: Setting, point: Point, result: TrialResult) -> Row:
    """A winner's measurement as a row."""
    return {
        "kind": "measured",
        "case": case.name,
        "setting": setting.model_dump(mode="json"),
        "point": point.model_dump(mode="json"),
        "result": result.model_dump(mode="json", exclude=_LEFT_OUT),
    }


def find_found(rows: Iterable[Row], case: str, setting: Row, contender: str) -> Row | None:
    """The result of a contender under these conditions; None where it has not run."""
    wanted = {"kind": "found", "case": case, "setting": setting, "contender": contender}
    return next((row for row in rows if _matches(row, wanted)), None)


def measurements_of(rows: Iterable[Row], case: str, setting: Row, point: Row | None) -> list[Row]:
    """The measurements of a point under these conditions, in their order."""
    wanted = {"kind": "measured", "case": case, "setting": setting, "point": point}
    return [row for row in rows if _matches(row, wanted)]


def _matches(row: Row, wanted: Row) -> bool:
    return all(row.get(key) == value for key, value in wanted.items())
