"""The grid sampler: every point once, in an order whose beginning already covers the whole space."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from autotune.space.fields import point_order
from autotune.study.record import Record
from trials.wire import Point

GOLDEN_RATIO = (5**0.5 - 1) / 2


class GridProposer:
    """Walks through the space in strides.

    The points stand in canonical order (micro batch first) and the walk goes on by the golden ratio of their
    number each time. Any beginning of it is spread evenly over all micro batches and all the rest, so a
    search that is cut short has still seen everything coarsely; and it meets every point before it meets one
    twice. The seed does not matter.
    """

    def __init__(self, space_points: Sequence[Point], seed: int) -> None:
        """Lays out the walk.

        Args:
            space_points: all points of the space.
            seed: not used.
        """
        self._turns = {point: turn for turn, point in enumerate(golden_walk(space_points))}

    def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
        """See `Proposer.propose`. Candidates outside the space come last, in canonical order."""
        last = len(self._turns)
        return min(candidates, key=lambda point: (self._turns.get(point, last), point_order(point)))


def golden_walk(points: Sequence[Point]) -> list[Point]:
    """The points in the order of the walk."""
    ordered = sorted(set(points), key=point_order)
    count = len(ordered)
    stride = max(1, round(count * GOLDEN_RATIO))
    while gcd(stride, count) > 1:
        stride += 1
    return [ordered[turn * stride % count] for turn in range(count)]
