"""Whether an earlier call searched all there is, or enough, so that the same command again need not begin.

Which points are not worth a launch is known only to predictions, and those to a process that takes long to
start. So a search that has run out of points notes under what circumstances it did.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from autotune import __version__
from autotune.tuning.session import measured_records
from autotune.tuning.task import Task

if TYPE_CHECKING:
    from autotune.study import Study

NOTE = "searched"


def note_searched(study: Study, task: Task, *, host_limited: bool, until: float = 0.0) -> None:
    """Keep that no point is left, or none that is worth its trial.

    Args:
        study: whose search has run out of points.
        task: as it was asked for, before the model was looked at.
        host_limited: whether host memory kept some point from being launched.
        until: less than this share was expected to be left to gain; 0: no point was left at all.
    """
    host_bytes = task.host_budget_bytes if host_limited else None
    study.set_note(NOTE, {"state": _state(study, task), "host_bytes": host_bytes, "until": until})


def is_searched(study: Study, task: Task) -> bool:
    """Whether no point was left to this request, and nothing has changed that could make one."""
    note: Any = study.note(NOTE)
    if note is None or note["state"] != _state(study, task):
        return False
    if note.get("until", 0.0) > task.request.until:
        return False
    return note["host_bytes"] is None or task.host_budget_bytes <= note["host_bytes"]


def _state(study: Study, task: Task) -> str:
    """A digest of what decides which points are left."""
    points = [[point.model_dump(mode="json") for point in stage.points] for stage in task.stages]
    trials = [record.number for record in measured_records(study)]
    text = json.dumps([__version__, task.machine.versions, points, trials], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
