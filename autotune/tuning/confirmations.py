"""What the longer runs that a study keeps say of its points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.study.dominance import MEMORY_OUTCOMES, needs_at_least
from trials.wire import Outcome, Phase, Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Study

# What a confirmation that ended so says of its point is final; a crash or a time-out may be the machine's.
DECISIVE = frozenset({Outcome.OOM, Outcome.HOST_OOM, Outcome.NAN})
# What a trial of the search does not get to: that it ended well says nothing of these.
AFTER_TRAINING = (Phase.EVALUATION, Phase.SAVING)


def holds(result: TrialResult, budget_bytes: int) -> bool:
    """Whether a confirmation ended well and inside the budget."""
    required = result.required_device_bytes
    return result.outcome is Outcome.OK and (required is None or required <= budget_bytes)


def is_open(result: TrialResult) -> bool:
    """Whether a longer run ended in a way that says nothing of its configuration."""
    return result.outcome not in DECISIVE and result.outcome is not Outcome.OK


def failed_confirmations(study: Study) -> dict[Point, TrialResult]:
    """The points that do not hold, each with the longer run that showed it.

    That is its own latest one, or where it has none that of a point which needs at most as much for an
    evaluation pass or a checkpoint.
    """
    budget_bytes = study.inputs.budget_bytes
    known = {r.point: r.result for r in study.confirmations() if r.result and not is_open(r.result)}
    failed = {point: result for point, result in known.items() if not holds(result, budget_bytes)}
    after = [
        (point, result)
        for point, result in failed.items()
        if result.outcome in MEMORY_OUTCOMES and result.phase in AFTER_TRAINING
    ]
    for record in study.records() if after else ():
        for point, result in after:
            if record.point not in known and needs_at_least(record.point, point, failed_in=result.phase):
                failed.setdefault(record.point, result)
    return failed


def failed_points(study: Study) -> frozenset[Point]:
    """The points of which a longer run showed that they do not hold."""
    return frozenset(failed_confirmations(study))


def confirmation_of(study: Study, point: Point) -> TrialResult | None:
    """The good confirmation of a point, if there is one."""
    good = [
        record.result
        for record in study.confirmations()
        if record.point == point
        and record.result is not None
        and holds(record.result, study.inputs.budget_bytes)
    ]
    return good[-1] if good else None
