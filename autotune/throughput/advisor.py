"""What to measure next, and what is left to gain: from trials so far to one of the candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autotune.throughput.belief import Belief, Observation, Rows
from autotune.throughput.coefficients import Prior, Vector
from autotune.throughput.cost import measuring_seconds
from autotune.throughput.gain import Remaining, best_row, expected_gain, remaining_gain
from autotune.throughput.room import Tried, chance_of_room, rough_needs
from autotune.throughput.seen import Seen, builds_of, observations_of
from autotune.throughput.work import Training
from autotune.throughput.worked import Worked
from trials.wire import Point

# The chance that each point's memory suffices.
Chance = Callable[[Sequence[Point]], Vector]


class Advisor:
    """Ranks candidates by expected gain per second of measuring.

    Pure in what it is asked: it keeps nothing but what it has worked out of the points.

    Args:
        training: what is trained, on what.
        points: the space; others may be asked about too.
        chance: that memory suffices, where it is predicted; None: learned from trials, by rough sizes.
        prior: of the coefficients; None: the shipped one.
        known: speeds of this training that were measured before, elsewhere.
    """

    def __init__(
        self,
        training: Training,
        points: Sequence[Point],
        *,
        chance: Chance | None = None,
        prior: Prior | None = None,
        known: Sequence[Observation] = (),
    ) -> None:
        self._training = training
        self._space = Worked(training, tuple(dict.fromkeys(points)))
        self._chance = chance
        self._prior = prior
        self._known = tuple(known)

    def propose(self, seen: Sequence[Seen], candidates: Sequence[Point]) -> Point:
        """The candidate to measure next.

        Before anything is measured that is the fastest believed; later the one whose expected gain over the
        best measured, times the chance that it fits, is the largest for the time it takes. Trials that still
        run count as having measured what is believed of them, so that several workers spread.

        Args:
            seen: trials in the order they ended, running ones included.
            candidates: never empty.
        """
        belief = self.belief(seen, candidates, imagined=True)
        rows, chance = belief.rows_of(candidates), self.chance(seen, candidates)
        measured = _measured_rows(belief, seen)
        if not len(measured):
            return candidates[int(np.argmax(chance * belief.tokens_per_second[rows]))]
        best = best_row(belief, measured)
        gain = chance * expected_gain(belief, rows, best)
        worth = gain / measuring_seconds(belief, rows, builds_of(seen))
        # Where nothing is to be gained by any, the fastest believed.
        return candidates[int(np.lexsort((belief.mean[rows], worth))[-1])]

    def remaining(self, seen: Sequence[Seen], candidates: Sequence[Point], margin: float) -> Remaining | None:
        """What is left to gain in the candidates; None where nothing is measured to compare with.

        Args:
            seen: trials so far.
            candidates: what may still be measured.
            margin: by what share one must be faster to count as beating the best.
        """
        belief = self.belief(seen, candidates)
        measured = _measured_rows(belief, [one for one in seen if not one.running])
        if not len(measured):
            return None
        rows = belief.rows_of(candidates)
        best = best_row(belief, measured)
        return remaining_gain(belief, rows, best, chance=self.chance(seen, candidates), margin=margin)

    def belief(self, seen: Sequence[Seen], points: Sequence[Point] = (), *, imagined: bool = False) -> Belief:
        """What is believed of the space and these points.

        Args:
            seen: trials so far.
            points: to know about beside the space.
            imagined: whether running trials count as having measured what is believed of them.
        """
        worked = self._with([*points, *(one.point for one in seen)])
        observations = [*self._known, *observations_of(seen)]
        belief = Belief(worked, observations, self._prior)
        running = [one.point for one in seen if one.running] if imagined else []
        if not running:
            return belief
        speeds = belief.tokens_per_second[belief.rows_of(running)]
        fancied = [Observation(point, float(speed)) for point, speed in zip(running, speeds, strict=True)]
        return Belief(worked, [*observations, *fancied], self._prior)

    def chance(self, seen: Sequence[Seen], points: Sequence[Point]) -> Vector:
        """The chance that each point's memory suffices."""
        if self._chance is not None:
            return self._chance(points)
        known = [one for one in seen if one.fitted is not None]
        if all(one.fitted for one in known):
            # Nothing has shown a limit, and a rough size alone shows none.
            return np.ones(len(points))
        needs = rough_needs(self._training, [*points, *(one.point for one in known)])
        tried = [Tried(need, bool(one.fitted)) for need, one in zip(needs[len(points) :], known, strict=True)]
        return chance_of_room(needs[: len(points)], tried, limit_bytes=None)

    def _with(self, points: Sequence[Point]) -> Worked:
        """The space, with points that it does not have."""
        foreign = [point for point in dict.fromkeys(points) if point not in self._space.row]
        return Worked(self._training, [*self._space.points, *foreign]) if foreign else self._space


def _measured_rows(belief: Belief, seen: Sequence[Seen]) -> Rows:
    """The points that fit and whose speed was measured, or is imagined while they run."""
    able = [one for one in seen if one.fitted is not False]
    points = dict.fromkeys(one.point for one in able if one.running or one.tokens_per_second is not None)
    return belief.rows_of(list(points))
