"""The winner is measured again, longer and alone, before it is announced; if it fails, the next one is.

The runner-up is measured again too where that could change who wins: shortly, in a fresh process.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.study.judging import holds, is_open
from autotune.study.stored import DECIDED_NOTE
from autotune.tuning.confirmations import confirmation_of, failed_points, good_confirmations
from autotune.tuning.folders import trial_id
from autotune.tuning.repeats import repeated_failure, repeated_problem
from autotune.tuning.session import Session, measured_records
from autotune.winner import choose_winner
from autotune.winner.choice import given_up, same_speed, tied_with, trains_better
from autotune.winner.ranking import ranking, tokens_per_second
from trials.wire import Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Record, Study

CONFIRM_TIMEOUT_FACTOR = 2.0
MOST_CONFIRMED = 3
MOST_BETTER_TRAINED = 2
CLEARLY_FASTER = 1.05
WORTH_TELLING = 0.05
RECHECKED_NOTE = "rechecked"


@dataclass(frozen=True)
class Chosen:
    """The configuration that wins.

    Attributes:
        record: its trial in the search.
        confirmation: its longer run; None where there was none yet.
    """

    record: Record
    confirmation: TrialResult | None

    @property
    def measured(self) -> TrialResult:
        """What is announced."""
        result = self.confirmation or self.record.result
        assert result is not None
        return result


def effective_records(study: Study) -> list[Record]:
    """The trials that count, each with the result of its latest measurement in a process of its own."""
    records = measured_records(study)
    known, rechecked = good_confirmations(study), _rechecked(study)
    return [
        dataclasses.replace(
            record, result=known.get(record.point) or rechecked.get(record.number) or record.result
        )
        for record in records
    ]


def best_so_far(study: Study) -> Chosen | None:
    """The winner as the study knows it now, confirmed or not; nothing is run."""
    records = measured_records(study)
    decided: Any = study.note(DECIDED_NOTE)
    if decided is not None and decided["trials"] == len(records):
        record = _numbered(records, decided["number"])
        return Chosen(record, confirmation_of(study, record.point))
    best = choose_winner(
        effective_records(study), exclude=failed_points(study), budget_bytes=study.inputs.budget_bytes
    )
    if best is None:
        return None
    record = _numbered(records, best.number)
    return Chosen(record, confirmation_of(study, record.point))


def confirm_winner(session: Session, *, go_on: bool = True) -> Chosen | None:
    """The fastest configuration that also holds in a longer run of its own; None where none does.

    Where the longer run is so much slower that another configuration was measured clearly faster, that one is
    confirmed too, and so on a few times: on a noisy machine a lucky measurement must not win.

    Args:
        session: the work.
        go_on: whether the next one is tried where the fastest does not hold; else the search may know better
            than what happens to be measured.

    Raises:
        KeyboardInterrupt: the user stopped it.
        EnvironmentProblem: the confirmations all fail alike.
    """
    study, budget_bytes = session.study, session.task.budget.size_bytes
    excluded = failed_points(study) | session.unconfirmed
    confirmed: list[Record] = []
    while len(confirmed) < MOST_CONFIRMED:
        tried = {record.point for record in confirmed}
        record = choose_winner(session.measured(), exclude=excluded | tried, budget_bytes=budget_bytes)
        if record is None or not _worth_confirming(record, confirmed):
            break
        result = confirmation_of(study, record.point) or _confirm(session, record)
        if is_open(result):
            session.observer.say(
                f"the longer run ended in {result.outcome.value}: once more, it may be chance"
            )
            result = _confirm(session, record)
        if holds(result, budget_bytes):
            confirmed.append(dataclasses.replace(record, result=result))
            continue
        session.failures.append(result)
        if is_open(result):
            session.unconfirmed.add(record.point)
        excluded = failed_points(study) | session.unconfirmed
        left_out = not go_on and not is_open(result)
        what = "it is left out from here on" if left_out else "trying the next one"
        session.observer.say(f"the best configuration does not hold in a longer run: {what}")
        repeated = repeated_failure(session.failures)
        if repeated is not None:
            raise repeated_problem(repeated, session.folders.log_of(repeated.trial_id))
        if left_out:
            return None
    best = choose_winner(confirmed, budget_bytes=budget_bytes)
    if best is None:
        return None
    best = _against_runner_up(session, best, confirmed, excluded)
    best = _against_better_training(session, best, set(excluded))
    if session.unconfirmed:
        # The next call tries the faster one again: nothing is known against it.
        session.observer.say("a faster configuration could not be confirmed; the same command tries it again")
        return Chosen(_numbered(session.measured(), best.number), best.result)
    with session.interrupts.held():
        study.set_note(DECIDED_NOTE, {"number": best.number, "trials": len(session.measured())})
    return best_so_far(study)


def _against_runner_up(
    session: Session, best: Record, confirmed: list[Record], excluded: frozenset[Point]
) -> Record:
    """The winner after its runner-up had a fresh measurement, where that one's own leaves a doubt.

    Args:
        session: the work.
        best: the winner among the confirmed.
        confirmed: records with their confirmations' results.
        excluded: points that do not hold.
    """
    budget_bytes = session.task.budget.size_bytes
    others = excluded | {record.point for record in confirmed}
    runner_up = next(iter(ranking(effective_records(session.study), others, budget_bytes=budget_bytes)), None)
    if runner_up is None or not _is_doubtful(runner_up, best):
        return best
    if runner_up.number not in _rechecked(session.study):
        runner_up = dataclasses.replace(runner_up, result=_recheck(session, runner_up))
    if choose_winner([best, runner_up], budget_bytes=budget_bytes) is not runner_up:
        return best
    result = confirmation_of(session.study, runner_up.point) or _confirm(session, runner_up)
    if not holds(result, budget_bytes):
        session.observer.say("the runner-up does not hold in a longer run: the winner stays")
        return best
    both = [best, dataclasses.replace(runner_up, result=result)]
    return choose_winner(both, budget_bytes=budget_bytes) or best


def _against_better_training(session: Session, best: Record, excluded: set[Point]) -> Record:
    """The winner, unless the clock cannot tell it from what trains better, which then is confirmed too.

    Confirmations move speeds, so that ties appear which the search's own figures did not have.
    """
    budget_bytes = session.task.budget.size_bytes
    for _ in range(MOST_BETTER_TRAINED):
        others = [record for record in effective_records(session.study) if record.point not in excluded]
        tied = tied_with(best, others, budget_bytes=budget_bytes)
        better = [record for record in tied if trains_better(record, best)]
        if not better:
            break
        wanted = min(better, key=given_up)
        result = confirmation_of(session.study, wanted.point) or _confirm(session, wanted)
        if not holds(result, budget_bytes):
            excluded.add(wanted.point)
            continue
        wanted = dataclasses.replace(wanted, result=result)
        chosen = choose_winner([best, wanted], budget_bytes=budget_bytes)
        if chosen is not wanted:
            # Alone it is slower, and the winner stays.
            excluded.add(wanted.point)
            continue
        best = wanted
    return best


def _is_doubtful(runner_up: Record, best: Record) -> bool:
    """Whether a measurement in a fresh process could make it the winner."""
    assert runner_up.result is not None
    return runner_up.result.build == "reused" or same_speed(runner_up, best)


def _recheck(session: Session, record: Record) -> TrialResult:
    """A short measurement in a process of its own, kept in the study."""
    from autotune.study.trial_codec import encode_result

    session.observer.detail("measuring the runner-up again in a fresh process")
    spec = session.spec(trial_id(record.position, record.number, "recheck"), record.point)
    result = session.run(spec, session.task.request.trial_timeout_seconds, fresh=True)
    with session.interrupts.held():
        kept = dict(session.study.note(RECHECKED_NOTE) or {})
        kept[str(record.number)] = encode_result(result)
        session.study.set_note(RECHECKED_NOTE, kept)
    session.look_back(
        "the runner-up's second measurement",
        record.point,
        result,
        session.foresight.recorded(record.point) if session.foresight else None,
    )
    return result


def _rechecked(study: Study) -> dict[int, TrialResult]:
    kept: Any = study.note(RECHECKED_NOTE)
    if not kept:
        return {}
    return {int(number): TrialResult.model_validate(value) for number, value in kept.items()}


def _numbered(records: list[Record], number: int) -> Record:
    return next(record for record in records if record.number == number)


def _worth_confirming(record: Record, confirmed: list[Record]) -> bool:
    """Whether it was measured clearly faster than what is confirmed already."""
    fastest = max((tokens_per_second(known) for known in confirmed), default=0.0)
    return tokens_per_second(record) > CLEARLY_FASTER * fastest


def words_of_change(trial: TrialResult | None, longer: TrialResult) -> str | None:
    """What to say where a longer run was clearly faster or slower than its trial; None where it was not."""
    before, after = trial and trial.tokens_per_second, longer.tokens_per_second
    if not before or not after or abs(after / before - 1) <= WORTH_TELLING:
        return None
    change = f"{abs(after / before - 1):.0%} {'faster' if after > before else 'slower'}"
    return f"that is {change} than its trial, which was shorter: the longer run's speed is announced"


def _confirm(session: Session, record: Record) -> TrialResult:
    session.observer.confirming(record.point)
    name = trial_id(record.position, record.number, "confirm")
    spec = session.spec(name, record.point, confirm=True)
    result = session.run(spec, CONFIRM_TIMEOUT_FACTOR * session.task.request.trial_timeout_seconds)
    with session.interrupts.held():
        session.study.add_confirmation(record.point, result)
    session.observer.confirmed(record.point, result)
    words = words_of_change(record.result, result)
    if words is not None:
        session.observer.say(words)
    predicted = session.foresight.recorded(record.point) if session.foresight else None
    session.look_back("the confirmation", record.point, result, predicted)
    return result
