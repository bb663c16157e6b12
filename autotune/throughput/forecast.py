"""The speed of points where nothing is measured yet."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.throughput.belief import Belief
from autotune.throughput.work import Training
from autotune.throughput.worked import Worked
from trials.wire import Point


def predicted_speeds(training: Training, points: Sequence[Point]) -> list[float]:
    """Tokens per second of each point, over all processes, as physics has it.

    Args:
        training: what is trained, on what.
        points: in any order.
    """
    if not points:
        return []
    return [float(speed) for speed in Belief(Worked(training, points)).tokens_per_second]
