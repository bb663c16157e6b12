"""Studies: real trials in Optuna's storage. What needs Optuna is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autotune.study.dominance import is_dominated
from autotune.study.inputs import StudyInputs
from autotune.study.point_taken import PointTaken
from autotune.study.record import Record
from autotune.study.storage_url import default_storage_url, redact

if TYPE_CHECKING:
    from autotune.study.study import Study
    from autotune.study.summaries import StudySummary, contents_of, latest_study, list_studies

_LAZY = {
    "Study": "autotune.study.study",
    "StudySummary": "autotune.study.summaries",
    "contents_of": "autotune.study.summaries",
    "latest_study": "autotune.study.summaries",
    "list_studies": "autotune.study.summaries",
}

__all__ = [
    "PointTaken",
    "Record",
    "Study",
    "StudyInputs",
    "StudySummary",
    "contents_of",
    "default_storage_url",
    "is_dominated",
    "latest_study",
    "list_studies",
    "redact",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
