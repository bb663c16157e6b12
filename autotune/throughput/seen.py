"""What a trial teaches: its speed, whether its memory sufficed, how long building took."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.throughput.belief import LEAST_NOISE, Observation
from autotune.throughput.cost import Build, Builds, setup_seconds_by_build
from trials.wire import Outcome, Point, TrialResult

# Of a trial that was stopped after its first timed steps.
STOPPED_NOISE = 0.08
# Of a trial that something else on the GPU, its clocks or its temperature disturbed.
DISTURBED_NOISE = 0.15
# A 95 % interval is so many standard deviations wide.
_INTERVAL_DEVIATIONS = 2 * 1.96
_MOST_NOISE = 0.5


@dataclass(frozen=True)
class Seen:
    """A trial as the model of speed sees it.

    Attributes:
        point: what was tried.
        tokens_per_second: as measured, also where memory did not suffice in the end; None where it was not.
        noise: standard deviation of its logarithm.
        fitted: whether memory sufficed; None where nobody knows.
        running: whether it still runs.
        setup_seconds: until its first step.
    """

    point: Point
    tokens_per_second: float | None = None
    noise: float = LEAST_NOISE
    fitted: bool | None = None
    running: bool = False
    setup_seconds: float | None = None


def seen_of(point: Point, result: TrialResult | None) -> Seen:
    """What a result teaches; None: the trial still runs."""
    if result is None:
        return Seen(point, running=True)
    match result.outcome:
        case Outcome.OK | Outcome.STOPPED if is_speed(result.tokens_per_second):
            # Of a point measured on an engine that lived, the time until its first step says nothing.
            setup = result.setup_seconds if result.build == "fresh" else None
            return Seen(point, result.tokens_per_second, _noise(result), True, setup_seconds=setup)
        case Outcome.OK | Outcome.STOPPED | Outcome.TIMEOUT:
            return Seen(point, fitted=True)
        case Outcome.OOM | Outcome.HOST_OOM if is_speed(result.tokens_per_second):
            # It trained, and had no room for what comes after the steps.
            return Seen(point, result.tokens_per_second, _noise(result), False)
        case Outcome.OOM | Outcome.HOST_OOM:
            return Seen(point, fitted=False)
        case _:
            return Seen(point)


def is_speed(value: float | None) -> bool:
    """Whether a figure is a throughput."""
    return value is not None and math.isfinite(value) and value > 0


def observations_of(seen: Iterable[Seen]) -> list[Observation]:
    """The measured throughputs."""
    return [
        Observation(one.point, one.tokens_per_second, one.noise)
        for one in seen
        if one.tokens_per_second is not None
    ]


def builds_of(seen: Iterable[Seen]) -> Builds:
    """What is known of building; the last trial's engine lives, for an out-of-memory does not end it."""
    over = [one for one in seen if not one.running]
    live: Build | None = over[-1].point.build if over and over[-1].fitted is not None else None
    return Builds(live, setup_seconds_by_build([s.point for s in over], [s.setup_seconds for s in over]))


def _noise(result: TrialResult) -> float:
    least = STOPPED_NOISE if result.outcome is Outcome.STOPPED else LEAST_NOISE
    least = max(least, DISTURBED_NOISE) if result.disturbed else least
    low, high = result.tokens_per_second_low, result.tokens_per_second_high
    if low is None or high is None or not 0 < low < high:
        return least
    return min(_MOST_NOISE, max(least, math.log(high / low) / _INTERVAL_DEVIATIONS))
