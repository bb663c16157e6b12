"""The default sampler: a model of the machine ranks all candidates, and each measurement corrects it."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.samplers.knowledge import Knowledge
from autotune.study.record import Record
from autotune.throughput.advisor import Advisor
from autotune.throughput.seen import seen_of
from trials.wire import Point


class PhysicsProposer:
    """Takes the candidate whose expected gain per second of measuring is largest; see `Advisor`."""

    def __init__(self, space_points: Sequence[Point], seed: int, knowledge: Knowledge) -> None:
        """Works out what every point of the space has to do.

        Args:
            space_points: all points of the space.
            seed: not used: nothing is left to chance.
            knowledge: what is trained, on what, and what fits.
        """
        self._advisor = Advisor(
            knowledge.training,
            space_points,
            chance=knowledge.chance,
            prior=knowledge.prior,
            known=knowledge.known,
        )

    def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
        """See `Proposer.propose`."""
        return self._advisor.propose([seen_of(record.point, record.result) for record in history], candidates)
