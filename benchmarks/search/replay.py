"""Replays searches on a table: what each sampler would have found, after how many trials and seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from autotune.samplers import Knowledge, make_sampler
from autotune.study import Record
from autotune.throughput.advisor import Advisor
from autotune.throughput.coefficients import Prior
from autotune.throughput.cost import (
    CHANGE_SECONDS,
    OFFLOAD_BUILD_SECONDS,
    PLAIN_BUILD_SECONDS,
)
from autotune.throughput.gain import Remaining
from autotune.tuning.candidates import Candidates
from autotune.tuning.certainty import is_settled, left_to_gain
from benchmarks.search.table import Row, Table, are_tied
from trials.wire import Outcome, Point, TrialResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOST_TRIALS = 40
UNTIL = 0.01
# Where a table has no intervals: what a measurement repeats to.
NOISE = 0.02
# As trials measure where a table does not say how long it took.
LEAST_STEPS = 2
TIMED_SECONDS = 2.0
WARM_UP_MICRO_BATCHES = 4
# An out-of-memory is met in the first step.
OOM_SECONDS = 1.0


@dataclass(frozen=True)
class Case:
    """A table under a budget.

    Attributes:
        table: with its measurements.
        budget_bytes: device memory; points predicted to need more are not launched.
    """

    table: Table
    budget_bytes: int

    @property
    def points(self) -> list[Point]:
        """The points that would be launched: those that ran out of memory all the same are among them."""
        return [
            point
            for point, row in self.table.rows.items()
            if ((row.outcome is Outcome.OK and bool(row.tokens_per_second)) or row.outcome is Outcome.OOM)
            and (row.required_device_bytes or 0) <= self.budget_bytes
        ]

    @property
    def best(self) -> float:
        """The largest measured throughput, tokens per second."""
        fastest = self.fastest
        return (fastest and fastest.tokens_per_second) or 0.0

    @property
    def fastest(self) -> TrialResult | None:
        """What the trial of the fastest point reported; None where nothing ran."""
        ran = [self.table.rows[point] for point in self.points if point in self.table.measured]
        rows = sorted(ran, key=lambda row: row.tokens_per_second or 0.0)
        return rows[-1].result("") if rows else None


@dataclass(frozen=True)
class Replay:
    """One search on a case.

    Attributes:
        regrets: after each trial, the share of the best throughput that is missing.
        tied: after each trial, whether the clock cannot tell what would be chosen from the best.
        seconds: after each trial, simulated seconds of measuring.
        ooms: trials that ran out of memory.
        stopped_after: trials after which little was left to gain; None where that was not reached.
        left: what was left to gain then, as it was thought.
        beaten: whether a point that was not measured then is truly faster by more than the margin.
    """

    regrets: tuple[float, ...]
    tied: tuple[bool, ...]
    seconds: tuple[float, ...]
    ooms: int
    stopped_after: int | None = None
    left: Remaining | None = None
    beaten: bool = False

    def trials_to(self, share: float) -> int | None:
        """After how many trials less than this share is missing; None: not in time."""
        return next((index + 1 for index, regret in enumerate(self.regrets) if regret <= share), None)

    def trials_to_a_tie(self) -> int | None:
        """After how many trials the clock cannot tell the choice from the best; None: not in time."""
        return next((index + 1 for index, tied in enumerate(self.tied) if tied), None)

    def seconds_to(self, share: float) -> float | None:
        """After how many seconds less than this share is missing; None: not in time."""
        trials = self.trials_to(share)
        return None if trials is None else self.seconds[trials - 1]


def replay(case: Case, sampler: str, seed: int, prior: Prior, trials: int = MOST_TRIALS) -> Replay:
    """One search, measurements disturbed as the table's intervals say.

    Args:
        case: the table and its budget.
        sampler: its name.
        seed: of the sampler and of the disturbance.
        prior: of the coefficients, fitted on other tables.
        trials: at most.
    """
    points = case.points
    knowledge = Knowledge(case.table.training, chance=lambda some: np.ones(len(some)), prior=prior)
    proposer = make_sampler(sampler, points, seed, knowledge)
    advisor = Advisor(knowledge.training, points, chance=knowledge.chance, prior=prior)
    results = _disturbed(case.table.rows, points, seed)
    best, found, spent, live = case.best, 0.0, 0.0, None
    truth, candidates = case.table.measured, Candidates(points)
    history: list[Record] = []
    fastest = case.fastest
    regrets: list[float] = []
    tied: list[bool] = []
    seconds: list[float] = []
    stopped, left, beaten = None, None, False
    while len(candidates) and len(history) < trials:
        point = proposer.propose(history, candidates.remaining())
        record = Record(len(history), point, results[point], None, NOW, NOW)
        history.append(record)
        candidates.update(history)
        spent += _seconds(case.table, point, live)
        # An out-of-memory leaves the engine as good as before.
        live = point.build
        # What counts is the true speed of what would be chosen now.
        chosen = max(history, key=lambda one: (one.result and one.result.tokens_per_second) or 0.0).point
        found = truth.get(chosen, 0.0)
        regrets.append(1 - found / best)
        tied.append(fastest is not None and are_tied(case.table.rows[chosen].result(""), fastest))
        seconds.append(spent)
        if sampler == "physics" and stopped is None:
            now = left_to_gain(advisor, history, candidates.remaining(), UNTIL)
            if is_settled(now, history, UNTIL):
                stopped, left = len(history), now
                open_points = candidates.remaining()
                most = max((truth.get(one, 0.0) for one in open_points), default=0.0)
                beaten = most > (1 + UNTIL) * found
    ooms = sum(results[one.point].outcome is Outcome.OOM for one in history)
    return Replay(tuple(regrets), tuple(tied), tuple(seconds), ooms, stopped, left, beaten)


def _disturbed(rows: Mapping[Point, Row], points: Sequence[Point], seed: int) -> dict[Point, TrialResult]:
    """What a trial of each point reports this time."""
    random = np.random.default_rng(seed)
    results = {}
    for number, point in enumerate(points):
        row, result = rows[point], rows[point].result(str(number))
        speed = row.tokens_per_second
        if speed is not None:
            known = row.low and row.high and row.high > row.low
            noise = max(NOISE, np.log(row.high / row.low) / 4) if known else NOISE
            factor = float(np.exp(noise * random.standard_normal()))
            result = result.model_copy(
                update={
                    "tokens_per_second": speed * factor,
                    "tokens_per_second_low": speed * factor * np.exp(-2 * noise),
                    "tokens_per_second_high": speed * factor * np.exp(2 * noise),
                }
            )
        results[point] = result
    return results


def _seconds(table: Table, point: Point, live: tuple[object, ...] | None) -> float:
    """What a trial takes: building where the live engine is another one, and its steps."""
    row = table.rows[point]
    setup = CHANGE_SECONDS if point.build == live else table.setup_seconds.get(point.build)
    if setup is None:
        slow = point.offload != "none" or point.zero_stage == 3
        setup = OFFLOAD_BUILD_SECONDS if slow else PLAIN_BUILD_SECONDS
    if row.tokens_per_second is None:
        return setup + OOM_SECONDS
    if row.measure_seconds is not None:
        return setup + row.measure_seconds
    sequences = point.micro_batch_size * point.gradient_accumulation_steps
    step = sequences * table.inputs["seq_len"] / row.tokens_per_second
    warm_up = step * min(1.0, WARM_UP_MICRO_BATCHES / point.gradient_accumulation_steps)
    return setup + warm_up + max(LEAST_STEPS * step, TIMED_SECONDS)
