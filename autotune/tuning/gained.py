"""What a study's head start was worth, once its search is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.reuse.virtual import believed, virtual_search
from autotune.reuse.worth import Worth, worth_of
from autotune.tuning.stages import Stage

if TYPE_CHECKING:
    from autotune.tuning.session import Session

# The other search is imagined among so many of the fastest points: it takes a moment, and where a space is
# larger it finds its way sooner than it would have, so the head start is not praised too much.
MOST_POINTS = 400
MOST_TRIALS = 20


def worth_in(session: Session, stage: Stage) -> Worth | None:
    """Trials and minutes that a head start saved in a stage; None where nothing can be said.

    Args:
        session: whose search is over.
        stage: in which the winner was sought.
    """
    from autotune.samplers import Knowledge, make_sampler
    from autotune.throughput.advisor import Advisor
    from autotune.throughput.seen import seen_of

    own = frozenset(stage.points)
    records = [record for record in session.measured() if record.point in own]
    head_start, request = session.head_start, session.task.request
    if head_start is None or not head_start.used or not records:
        return None
    training, chance = session.training(), session.chance()
    taught = head_start.taught(records, training)
    advisor = Advisor(training, stage.points, chance=chance, prior=taught.prior, known=taught.known)
    belief = advisor.belief([seen_of(record.point, record.result) for record in records])
    fitting = session.may_fit(stage.points)
    speeds = dict(zip(belief.points, belief.tokens_per_second, strict=True))
    fastest = sorted(fitting, key=lambda point: -speeds[point])[:MOST_POINTS]
    if not fastest:
        return None
    proposer = make_sampler(request.sampler, fastest, request.seed, Knowledge(training, chance))
    known = believed({point: float(speeds[point]) for point in fastest})
    return worth_of(records, virtual_search(known, proposer.propose, fastest, MOST_TRIALS))


def tell_worth(session: Session) -> None:
    """Say what the head start was worth, and keep it in the study."""
    if session.head_start is None:
        return
    tried = {record.point for record in session.measured()}
    stage = next((stage for stage in reversed(session.task.stages) if tried & set(stage.points)), None)
    worth = worth_in(session, stage) if stage else None
    if worth is not None:
        session.observer.say(worth.words())
        with session.interrupts.held():
            session.head_start.keep_worth(worth)
