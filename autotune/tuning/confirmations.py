"""What the longer runs that a study keeps say of its points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.study.judging import failed_among, good_among
from trials.wire import Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Study


def failed_points(study: Study) -> frozenset[Point]:
    """The points of which a longer run showed that they do not hold."""
    return frozenset(failed_among(study.records(), study.confirmations(), study.inputs.budget_bytes))


def good_confirmations(study: Study) -> dict[Point, TrialResult]:
    """The latest good confirmation of each point that has one."""
    return good_among(study.confirmations(), study.inputs.budget_bytes)


def confirmation_of(study: Study, point: Point) -> TrialResult | None:
    """The good confirmation of a point, if there is one."""
    return good_confirmations(study).get(point)
