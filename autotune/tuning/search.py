"""The search: propose, measure, learn, until trials, time or points run out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from autotune.tuning.candidates import MEMORY_FAILURES, Candidates
from autotune.tuning.certainty import (
    LEAST_MEASURED,
    is_settled,
    keep_remaining,
    left_to_gain,
    unpriced_point,
)
from autotune.tuning.head_start import LEAST_MEASURED_AGAIN
from autotune.tuning.lessons import NOTHING
from autotune.tuning.limits import limits_in_the_way, limits_words
from autotune.tuning.promising import FIRST_TRIALS, least_point, promising_point
from autotune.tuning.session import Session, judged_records
from autotune.tuning.smallest import safest_point, smallest_point
from autotune.tuning.stages import Stage
from autotune.tuning.stopping import quality_values
from autotune.winner import choose_winner
from trials.wire import Outcome, Point

if TYPE_CHECKING:
    from autotune.samplers import Proposer
    from autotune.study import Record, Study
    from autotune.tuning.task import Task

FIRST_STAGE_SHARE = 0.5
OTHER_FAILURES = frozenset(Outcome) - MEMORY_FAILURES - {Outcome.OK, Outcome.STOPPED}


class Ending(Enum):
    """Why the search ended."""

    TRIALS = "the study's trials are used up"
    TIME = "the time is up"
    EXHAUSTED = "every point is measured or known not to fit"
    SETTLED = "little is left to gain"


def search(session: Session) -> Ending:
    """Measure until the search ends; a later method is only tried where no point of the earlier ones fits."""
    stages = session.task.stages
    ending = Ending.EXHAUSTED
    for index, stage in enumerate(stages):
        later = stages[index + 1 :]
        if later and _settled_in(later, session):
            continue
        ending = _search_stage(session, stage, gives_way=bool(later))
        if not later or ending in (Ending.TIME, Ending.TRIALS) or _fits_any(stage, session):
            return ending
        session.observer.say(
            f"no {stage.method} configuration {_why_not(stage, session)}: trying {later[0].method}"
        )
    return ending


def anything_left(task: Task, study: Study) -> bool:
    """Whether a stage that still matters has a point that is neither measured nor known not to fit."""
    records = judged_records(study)
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
    from autotune.samplers import Knowledge, make_sampler
    from autotune.throughput.advisor import Advisor

    request = session.task.request
    candidates = Candidates(stage.points)
    own = frozenset(stage.points)
    if len(session.measured()) >= request.trials:
        return Ending.TRIALS
    session.foresee(stage.points)
    training, chance = session.training(), session.chance()
    proposer: Proposer | None = None
    advisor = Advisor(training, stage.points, chance=chance)
    known = NOTHING
    while True:
        records, pending = session.measured(), session.pending()
        candidates.update([*records, *pending])
        remaining = session.may_fit(candidates.remaining())
        in_stage = [record for record in records if record.point in own]
        taught = session.head_start.taught(in_stage, training) if session.head_start else NOTHING
        if proposer is None or taught is not known:
            known = taught
            knowledge = Knowledge(training, chance, taught.prior, taught.known)
            proposer = make_sampler(request.sampler, stage.points, request.seed, knowledge)
            advisor = Advisor(training, stage.points, chance=chance, prior=taught.prior, known=taught.known)
        left = left_to_gain(advisor, in_stage, remaining, request.until)
        with session.interrupts.held():
            keep_remaining(session.study, left)
        if len(records) >= request.trials:
            return Ending.TRIALS
        if not remaining:
            return Ending.EXHAUSTED
        if session.seconds_left() <= 0:
            return Ending.TIME
        if gives_way and not _fitting(in_stage, session) and len(in_stage) >= _share(request.trials):
            return Ending.EXHAUSTED
        elsewhere = session.head_start.prices(in_stage) if session.head_start else None
        least = LEAST_MEASURED if elsewhere is None else LEAST_MEASURED_AGAIN
        if _fitting(in_stage, session) and is_settled(left, in_stage, request.until, least):
            unpriced = unpriced_point(advisor, in_stage, remaining, elsewhere or ())
            if unpriced is None:
                if elsewhere:
                    _tell_prices(session, unpriced_point(advisor, in_stage, remaining), elsewhere)
                return Ending.SETTLED
            point = unpriced
        else:
            running = [record for record in pending if record.point in own]
            point = _next_point(session, in_stage, running, remaining, proposer)
        if session.decide(point):
            session.measure(point, len(remaining))


def _tell_prices(session: Session, unpriced: Point | None, elsewhere: Mapping[tuple[str, Any], str]) -> None:
    """Where prices were not asked again: which study shows them."""
    values = quality_values(unpriced) if unpriced else ()
    studies = sorted({elsewhere[value] for value in values if value in elsewhere})
    if studies:
        session.observer.say(f"what other values cost was measured before: {', '.join(studies)}")


def _next_point(
    session: Session,
    records: list[Record],
    running: list[Record],
    remaining: list[Point],
    proposer: Proposer,
) -> Point:
    """What to measure next.

    What similar studies suggest comes first, as long as it holds. The default sampler knows from the
    beginning where the speed is likely best; the others begin with the most promising points by the same
    model and go on from there. Without predictions, or where they were wrong and nothing has fitted yet,
    whatever needs least is first, so that something does.
    """
    head_start = session.head_start
    if head_start is not None:
        first = head_start.next_point(records, remaining, session.required_bytes, session.training(), running)
        if first is not None:
            return first
    fits = _fitting(records, session)
    failed = any(r.result is not None and r.result.outcome in MEMORY_FAILURES for r in records)
    foresight, knows_speed = session.foresight, session.task.request.sampler == "physics"
    carried = head_start.carried() if head_start else {}
    # What was carried over is compared with what the search would have begun with.
    tried = [record.point for record in records if record.point not in carried]
    if foresight is not None and not knows_speed and len(tried) < FIRST_TRIALS and (fits or not failed):
        budget_bytes = session.task.budget.size_bytes
        promising = promising_point(foresight.outlooks(remaining), budget_bytes, tried)
        if promising is not None:
            return promising
    if fits or (foresight is not None and knows_speed and not failed):
        everything = [*records, *running]
        own = head_start.first_of_its_own(everything, remaining, proposer.propose) if head_start else None
        allowed = head_start.preferred(records, remaining) if head_start else remaining
        return own or proposer.propose(everything, allowed)
    if foresight is not None:
        least = least_point(foresight.outlooks(remaining))
        if least is not None:
            return least
    device = session.task.device
    return smallest_point(remaining, device) if failed else safest_point(remaining, device)


def _why_not(stage: Stage, session: Session) -> str:
    """`is predicted to fit 24.0 GiB (the nearest needs 31.2 GiB of 24.0 GiB: ...)`, or `fits 24.0 GiB`.

    Where trials failed that were not about memory, `succeeded in 24.0 GiB (1 oom, 2 invalid)`.
    """
    task, own = session.task, frozenset(stage.points)
    results = [r.result for r in session.measured() if r.result is not None and r.point in own]
    limits = limits_in_the_way(session, stage.points)
    budget = limits_words(limits, task.budget.size_bytes, task.host_budget_bytes)
    if any(result.outcome in OTHER_FAILURES for result in results):
        counts = Counter(result.outcome.value for result in results)
        within = f" in {budget}" if limits else ""
        return f"succeeded{within} ({', '.join(f'{n} {outcome}' for outcome, n in counts.items())})"
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
