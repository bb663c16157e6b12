"""Whether what was carried over agrees with what is measured; where it does not, it is given up.

What is carried over is an order: the transferred points should be among the fastest. So the first of them is
measured beside a point that the search would have chosen by itself, and two things lower the trust:

- the search's own choice is faster by more than the clock's noise: from nothing at equal speed to all of it
  at `CLEARLY_FASTER`;
- transferred points stand in another order than expected, as far as expectation and measurement both tell
  them apart: the share of pairs in the wrong order.

A transferred point that ran out of memory says nothing of speed; when all have, nothing is left to trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log

from trials.wire import Point

# Ratios of throughputs: below the first two are alike, above the second one is clearly faster.
TOLD_APART = 1.03
CLEARLY_FASTER = 1.08
# Of the trials that the search chose by itself the first so many are compared with; later ones know better.
OWN_COMPARED = 2


@dataclass(frozen=True)
class Tried:
    """A point with what was expected of it and what was measured.

    Attributes:
        point: the configuration.
        expected: its speed by other studies, of which only ratios mean anything; None for the search's own
            choice.
        tokens_per_second: as measured; None where it did not run.
        noise: half of the 95 % interval of its logarithm.
    """

    point: Point
    expected: float | None
    tokens_per_second: float | None
    noise: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """What is left of the trust.

    Attributes:
        share: of the trust, what is left; in [0, 1].
        words: what disagrees; empty where nothing does.
    """

    share: float
    words: str = ""


def judged(tried: Sequence[Tried]) -> Judgement:
    """What the first measurements leave of the trust in what was carried over.

    Args:
        tried: the study's trials so far, in their order.
    """
    carried = [one for one in tried if one.expected is not None]
    ran = [one for one in carried if one.tokens_per_second is not None]
    if carried and not ran:
        return Judgement(0.0, "none of the configurations carried over ran here")
    if not ran:
        return Judgement(1.0)
    best = max(ran, key=_speed)
    own = [one for one in tried if one.expected is None and one.tokens_per_second][:OWN_COMPARED]
    # Of what the clock cannot tell, what was carried over has the benefit.
    ahead = max((_speed(one) / _speed(best) * exp(-one.noise - best.noise) for one in own), default=0.0)
    if ahead >= CLEARLY_FASTER:
        return Judgement(
            0.0, f"one found without them is {ahead - 1:.0%} faster than the best configuration carried over"
        )
    left = 1.0 if ahead <= 1.0 else 1.0 - log(ahead) / log(CLEARLY_FASTER)
    told, wrong = _order(ran)
    if not wrong:
        return Judgement(left)
    return Judgement(
        left * (1.0 - wrong / told), f"{wrong} of {told} pairs carried over are in another order here"
    )


def _order(ran: Sequence[Tried]) -> tuple[int, int]:
    """How many pairs are told apart by both, and how many of them are in the wrong order."""
    told = wrong = 0
    for one, other in combinations(ran, 2):
        assert one.expected is not None and other.expected is not None
        expected, measured = log(one.expected / other.expected), log(_speed(one) / _speed(other))
        if min(abs(expected), abs(measured) - one.noise - other.noise) < log(TOLD_APART):
            continue
        told += 1
        wrong += (expected > 0) != (measured > 0)
    return told, wrong


def _speed(one: Tried) -> float:
    assert one.tokens_per_second is not None
    return one.tokens_per_second
