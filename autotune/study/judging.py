"""Trials in the light of the longer runs: what did not hold there is no configuration to win.

Pure: of a study's records and confirmations, wherever they were read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotune.study.dominance import MEMORY_OUTCOMES, needs_at_least
from autotune.study.record import Record
from trials.wire import Outcome, Phase, Point, TrialResult

# What a confirmation that ended so says of its point is final; a crash or a time-out may be the machine's.
DECISIVE = frozenset({*MEMORY_OUTCOMES, Outcome.NAN})
# What a trial of the search does not get to: that it ended well says nothing of these.
AFTER_TRAINING = (Phase.EVALUATION, Phase.SAVING)
# A trial whose speed was measured while it held.
RAN = (Outcome.OK, Outcome.STOPPED)


def holds(result: TrialResult, budget_bytes: int) -> bool:
    """Whether a confirmation ended well and inside the budget."""
    required = result.required_device_bytes
    return result.outcome is Outcome.OK and (required is None or required <= budget_bytes)


def is_open(result: TrialResult) -> bool:
    """Whether a longer run ended in a way that says nothing of its configuration."""
    return result.outcome not in DECISIVE and result.outcome is not Outcome.OK


def good_among(confirmations: Iterable[Record], budget_bytes: int) -> dict[Point, TrialResult]:
    """The latest good longer run of each point that has one.

    Args:
        confirmations: a study's longer runs, oldest first.
        budget_bytes: device memory of one process.
    """
    return {one.point: one.result for one in confirmations if one.result and holds(one.result, budget_bytes)}


def failed_among(
    records: Iterable[Record], confirmations: Iterable[Record], budget_bytes: int
) -> dict[Point, TrialResult]:
    """The points that do not hold, each with the longer run that showed it.

    That is its own latest one, or where it has none that of a point which needs at most as much for an
    evaluation pass or a checkpoint.

    Args:
        records: a study's trials.
        confirmations: its longer runs, oldest first.
        budget_bytes: device memory of one process.
    """
    known = {one.point: one.result for one in confirmations if one.result and not is_open(one.result)}
    failed = {point: result for point, result in known.items() if not holds(result, budget_bytes)}
    after = [
        (point, result)
        for point, result in failed.items()
        if result.outcome in MEMORY_OUTCOMES and result.phase in AFTER_TRAINING
    ]
    for record in records if after else ():
        for point, result in after:
            if record.point not in known and needs_at_least(record.point, point, failed_in=result.phase):
                failed.setdefault(record.point, result)
    return failed


def judge(
    records: Sequence[Record], confirmations: Iterable[Record], budget_bytes: int
) -> tuple[Record, ...]:
    """The records; those that ran well and do not hold end as the longer run did, and keep their speed.

    Args:
        records: a study's trials.
        confirmations: its longer runs, oldest first.
        budget_bytes: device memory of one process.
    """
    failed = failed_among(records, confirmations, budget_bytes)
    return tuple(
        replace(record, result=_ended_as(record.result, failed[record.point]))
        if record.point in failed and record.result is not None and record.result.outcome in RAN
        else record
        for record in records
    )


def _ended_as(trial: TrialResult, longer: TrialResult) -> TrialResult:
    taken = ("outcome", "phase", "message", "oom_requested_bytes", "oom_short_bytes", "required_device_bytes")
    return trial.model_copy(update={name: getattr(longer, name) for name in taken})
