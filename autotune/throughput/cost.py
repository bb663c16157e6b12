"""How long measuring a point takes: building it, where the last one was built otherwise, and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from autotune.throughput.belief import Belief, Rows
from autotune.throughput.coefficients import Vector
from trials.wire import Point

# Of a forked trial on an H200 host (h200_memory.jsonl and h200_own.jsonl), in seconds.
PLAIN_BUILD_SECONDS = 8.0
OFFLOAD_BUILD_SECONDS = 16.0
# On an engine that lives, a change of micro batch and checkpointed share.
CHANGE_SECONDS = 0.3
# As trials measure: warm-up steps of two micro batches, then whole steps for about so long.
_WARM_UP_MICRO_BATCHES = 4
_LEAST_STEPS = 2
_TIMED_SECONDS = 2.0

Build = tuple[object, ...]


@dataclass(frozen=True)
class Builds:
    """What is known of building.

    Attributes:
        live: the build of the engine that lives; None: none does.
        seconds: measured setup times by build.
    """

    live: Build | None = None
    seconds: Mapping[Build, float] | None = None

    def setup_seconds(self, point: Point) -> float:
        """Until a point's first step."""
        if point.build == self.live:
            return CHANGE_SECONDS
        known = self.seconds or {}
        if point.build in known:
            return known[point.build]
        typical = OFFLOAD_BUILD_SECONDS if _is_slow(point) else PLAIN_BUILD_SECONDS
        return typical * _factor(known)


def measuring_seconds(belief: Belief, rows: Rows, builds: Builds) -> Vector:
    """(rows): how long measuring each point takes.

    Args:
        belief: of the points' speed, for their steps.
        rows: the points asked about.
        builds: what is known of building.
    """
    setups: dict[Build, float] = {}
    found = np.zeros(len(rows))
    for index, row in enumerate(rows):
        point = belief.points[row]
        if point.build not in setups:
            setups[point.build] = builds.setup_seconds(point)
        found[index] = setups[point.build]
    steps = belief.step_seconds[rows]
    accumulation = np.array([belief.points[row].gradient_accumulation_steps for row in rows])
    warm_up = steps * np.minimum(1.0, _WARM_UP_MICRO_BATCHES / accumulation)
    timed: Vector = np.maximum(_LEAST_STEPS * steps, _TIMED_SECONDS)
    return found + warm_up + timed


def setup_seconds_by_build(points: Sequence[Point], seconds: Sequence[float | None]) -> dict[Build, float]:
    """The setup time of each build, of the trial that really built it: the longest."""
    by_build: dict[Build, list[float]] = {}
    for point, value in zip(points, seconds, strict=True):
        if value is not None:
            by_build.setdefault(point.build, []).append(value)
    return {build: max(values) for build, values in by_build.items()}


def _is_slow(point: Point) -> bool:
    return point.offload != "none" or point.zero_stage == 3


def _factor(known: Mapping[Build, float]) -> float:
    """By how much this machine and model build slower than usual, as far as was seen."""
    return max(0.1, median(known.values()) / PLAIN_BUILD_SECONDS) if known else 1.0
