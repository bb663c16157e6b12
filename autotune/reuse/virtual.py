"""A search without a machine: on speeds that were measured before, or are believed.

It says how many trials a search takes from nothing, which is what a head start is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autotune.study.record import Record
from trials.wire import Outcome, Phase, Point, TrialResult

# As near to the fastest as is worth a search.
WITHIN = 0.02

Choose = Callable[[Sequence[Record], Sequence[Point]], Point]
Known = Callable[[Point], TrialResult]


@dataclass(frozen=True)
class VirtualSearch:
    """How a search went.

    Attributes:
        records: its trials, in order.
        trials: how many it took to come within `WITHIN` of the fastest; None where it did not.
        best: the fastest's tokens per second.
    """

    records: tuple[Record, ...]
    trials: int | None
    best: float


def virtual_search(known: Known, choose: Choose, points: Sequence[Point], most: int) -> VirtualSearch:
    """Searches until it is near the fastest point, or has measured so many.

    Args:
        known: what a trial of a point reports.
        choose: the next point, from the trials so far and the points that are left; such as a
            sampler's `propose`.
        points: what may be measured.
        most: trials at most.
    """
    results = {point: known(point) for point in points}
    best = max((_speed(result) for result in results.values()), default=0.0)
    records: list[Record] = []
    left = list(points)
    moment = datetime.now(UTC)
    while left and len(records) < most:
        point = choose(records, left)
        left.remove(point)
        records.append(Record(len(records), point, results[point], None, moment, moment))
        if _speed(results[point]) >= (1 - WITHIN) * best > 0:
            return VirtualSearch(tuple(records), len(records), best)
    return VirtualSearch(tuple(records), None, best)


def believed(speeds: Mapping[Point, float]) -> Known:
    """Trials that report what is believed; a point that is not among the speeds does not fit."""

    def known(point: Point) -> TrialResult:
        speed = speeds.get(point)
        if speed is None:
            return TrialResult(trial_id="", outcome=Outcome.OOM, phase=Phase.BACKWARD)
        return TrialResult(trial_id="", outcome=Outcome.OK, phase=Phase.LATER_STEP, tokens_per_second=speed)

    return known


def _speed(result: TrialResult) -> float:
    return result.tokens_per_second or 0.0 if result.outcome is Outcome.OK else 0.0
