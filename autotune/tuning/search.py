"""The search: propose, measure, learn, until trials, time or points run out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from autotune.sizes import format_size
from autotune.tuning.candidates import MEMORY_FAILURES, Candidates
from autotune.tuning.session import Session, measured_records
from autotune.tuning.smallest import safest_point, smallest_point
from autotune.tuning.stages import Stage
from autotune.winner import choose_winner
from trials.wire import Point

if TYPE_CHECKING:
    from autotune.samplers import Proposer
    from autotune.study import Record, Study
    from autotune.tuning.task import Task

FIRST_STAGE_SHARE = 0.5


class Ending(Enum):
    """Why the search ended."""

    TRIALS = "the study's trials are used up"
    TIME = "the time is up"
    EXHAUSTED = "every point is measured or known not to fit"


def search(session: Session) -> Ending:
    """Measure until the search ends; a later method is only tried where no point of the earlier ones fits."""
    stages = session.task.stages
    ending = Ending.EXHAUSTED
    for index, stage in enumerate(stages):
        later = stages[index + 1 :]
        if later and _settled_in(later, session):
            continue
        ending = _search_stage(session, stage, gives_way=bool(later))
        if not later or ending is Ending.TIME or _fits_any(stage, session):
            return ending
        session.observer.say(
            f"no {stage.method} configuration fits {format_size(session.task.budget.size_bytes)}: "
            f"trying {later[0].method}"
        )
    return ending


def anything_left(task: Task, study: Study) -> bool:
    """Whether a stage that still matters has a point that is neither measured nor known not to fit."""
    records = measured_records(study)
    for stage in task.stages:
        candidates = Candidates(stage.points)
        candidates.update(records)
        if len(candidates):
            return True
        own = frozenset(stage.points)
        in_stage = [record for record in records if record.point in own]
        if choose_winner(in_stage, budget_bytes=task.budget.size_bytes) is not None:
            return False
    return False


def _search_stage(session: Session, stage: Stage, *, gives_way: bool) -> Ending:
    from autotune.samplers import make_sampler

    request = session.task.request
    candidates = Candidates(stage.points)
    proposer = make_sampler(request.sampler, stage.points, request.seed)
    own = frozenset(stage.points)
    while True:
        records = session.measured()
        candidates.update([*records, *session.pending()])
        in_stage = [record for record in records if record.point in own]
        if len(records) >= request.trials:
            return Ending.TRIALS
        if not len(candidates):
            return Ending.EXHAUSTED
        if session.seconds_left() <= 0:
            return Ending.TIME
        if gives_way and not _fitting(in_stage, session) and len(in_stage) >= _share(request.trials):
            return Ending.EXHAUSTED
        point = _next_point(session, in_stage, candidates.remaining(), proposer)
        session.measure(point, len(candidates))


def _next_point(session: Session, records: list[Record], remaining: list[Point], proposer: Proposer) -> Point:
    """The proposer's choice once something fits; until then whatever needs least, so that something does."""
    if _fitting(records, session):
        return proposer.propose(records, remaining)
    device = session.task.device
    if any(r.result is not None and r.result.outcome in MEMORY_FAILURES for r in records):
        return smallest_point(remaining, device)
    return safest_point(remaining, device)


def _share(trials: int) -> int:
    return max(1, math.ceil(FIRST_STAGE_SHARE * trials))


def _fitting(records: list[Record], session: Session) -> bool:
    return choose_winner(records, budget_bytes=session.task.budget.size_bytes) is not None


def _fits_any(stage: Stage, session: Session) -> bool:
    own = frozenset(stage.points)
    return _fitting([record for record in session.measured() if record.point in own], session)


def _settled_in(later: Sequence[Stage], session: Session) -> bool:
    """Whether an earlier call had to go on to a later stage and found a fit there."""
    return any(_fits_any(stage, session) for stage in later)
