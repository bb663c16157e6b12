"""The random sampler: every candidate is as likely as any other."""

from __future__ import annotations

import random
from collections.abc import Sequence

from autotune.space.fields import point_order
from autotune.study.record import Record
from trials.wire import Point


class RandomProposer:
    """Draws uniformly from the candidates."""

    def __init__(self, space_points: Sequence[Point], seed: int) -> None:
        """Takes what every sampler takes; the space itself does not matter here."""
        self._seed = seed

    def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
        """See `Proposer.propose`."""
        return draw(self._seed, len(history), candidates)


def draw(seed: int, turn: int, candidates: Sequence[Point]) -> Point:
    """One of the candidates at random, whatever their order: the same for the same seed and turn."""
    return random.Random(f"{seed}:{turn}").choice(sorted(candidates, key=point_order))
