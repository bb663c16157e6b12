"""The first points of a search, before there is anything to learn from."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.samplers.grid import golden_walk
from autotune.samplers.seeding import seed_of_turn
from trials.wire import Point


def startup_point(space_points: Sequence[Point], seed: int, turn: int, candidates: Sequence[Point]) -> Point:
    """The next candidate on the grid's walk, begun at a place that depends on the seed.

    A few points along the walk are spread over the whole space, which as few random ones are not.

    Args:
        space_points: all points of the space; candidates beside it are walked too.
        seed: where to begin.
        turn: how many points came before.
        candidates: never empty.
    """
    walk = golden_walk([*space_points, *candidates])
    start = seed_of_turn(seed, 0) + turn
    allowed = set(candidates)
    places = (walk[(start + step) % len(walk)] for step in range(len(walk)))
    return next(point for point in places if point in allowed)
