"""The search: propose, measure, learn, until trials, time or points run out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from autotune.sizes import format_size
from autotune.tuning.candidates import MEMORY_FAILURES, Candidates
from autotune.tuning.promising import FIRST_TRIALS, least_point, promising_point
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
            f"no {stage.method} configuration {_why_not(stage, session)}: trying {later[0].method}"
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
    if len(session.measured()) < request.trials:
        session.foresee(stage.points)
    while True:
        records = session.measured()
        candidates.update([*records, *session.pending()])
        remaining = session.may_fit(candidates.remaining())
        in_stage = [record for record in records if record.point in own]
        if len(records) >= request.trials:
            return Ending.TRIALS
        if not remaining:
            return Ending.EXHAUSTED
        if session.seconds_left() <= 0:
            return Ending.TIME
        if gives_way and not _fitting(in_stage, session) and len(in_stage) >= _share(request.trials):
            return Ending.EXHAUSTED
        point = _next_point(session, in_stage, remaining, proposer)
        if session.decide(point):
            session.measure(point, len(remaining))


def _next_point(session: Session, records: list[Record], remaining: list[Point], proposer: Proposer) -> Point:
    """What to measure next.

    What similar studies suggest comes first, as long as it holds. With predictions the first trials are the
    most promising points, and the proposer goes on from there. Without them, or where they were wrong and
    nothing has fitted yet, whatever needs least, so that something does.
    """
    if session.head_start is not None:
        carried = session.head_start.next_point(records, remaining, session.required_bytes)
        if carried is not None:
            return carried
    fits = _fitting(records, session)
    failed = any(r.result is not None and r.result.outcome in MEMORY_FAILURES for r in records)
    foresight, budget_bytes = session.foresight, session.task.budget.size_bytes
    tried = [record.point for record in records]
    if foresight is not None and len(tried) < FIRST_TRIALS and (fits or not failed):
        promising = promising_point(foresight.outlooks(remaining), budget_bytes, tried)
        if promising is not None:
            return promising
    if fits:
        allowed = session.head_start.preferred(records, remaining) if session.head_start else remaining
        return proposer.propose(records, allowed)
    if foresight is not None:
        least = least_point(foresight.outlooks(remaining))
        if least is not None:
            return least
    device = session.task.device
    return smallest_point(remaining, device) if failed else safest_point(remaining, device)


def _why_not(stage: Stage, session: Session) -> str:
    """`is predicted to fit 24.0 GiB (the nearest needs 31.2 GiB of 24.0 GiB: ...)`, or `fits 24.0 GiB`."""
    budget = format_size(session.task.budget.size_bytes)
    if session.foresight is None or session.may_fit(stage.points):
        return f"fits {budget}"
    from autotune.planning.advice import nearest, reason

    outlooks, budgets = session.foresight.outlooks(stage.points), session.foresight.about.budgets
    assert outlooks, "what is not predicted may fit"
    return f"is predicted to fit {budget} (the nearest {reason(nearest(outlooks, budgets), budgets)})"


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
