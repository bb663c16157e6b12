"""What measuring further could still gain: for one point, and for all that is not measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from autotune.throughput.belief import Belief, Rows
from autotune.throughput.coefficients import Vector

# Points beyond the most promising ones add nothing that the figure shows.
_LOOKED_AT = 256
_DRAWS = 4096


@dataclass(frozen=True)
class Remaining:
    """What is left to gain in the points that are not measured.

    Attributes:
        share: expected gain of the best of them over the best measured one, as a share of its throughput.
        beaten: probability that one of them is faster by more than `margin`.
        margin: the share that was asked about.
        points: how many may still be measured.
    """

    share: float
    beaten: float
    margin: float
    points: int


def best_row(belief: Belief, measured: Rows) -> int:
    """Of the measured points the one believed to be the fastest."""
    return int(measured[np.argmax(belief.mean[measured])])


def expected_gain(belief: Belief, rows: Rows, best: int) -> Vector:
    """The expected gain of each point over the best measured one, as a share of its throughput.

    The difference of both logarithms is normal, and what they have in common cancels out of it.

    Args:
        belief: of all points.
        rows: the points asked about.
        best: the best measured one.
    """
    ahead = belief.mean[rows] - belief.mean[best]
    common = belief.covariance(rows, np.array([best]))[:, 0]
    variance = belief.deviation[rows] ** 2 + belief.deviation[best] ** 2 - 2 * common
    deviation = np.sqrt(np.maximum(variance, 1e-10))
    # The mean of a log-normal variable above 1, less 1 times the chance of that (as for a call option).
    gain = np.exp(ahead + variance / 2) * ndtr(ahead / deviation + deviation)
    expected: Vector = np.maximum(gain - ndtr(ahead / deviation), 0.0)
    return expected


def remaining_gain(
    belief: Belief, rows: Rows, best: int, *, chance: Vector | None = None, margin: float = 0.01
) -> Remaining:
    """What is left to gain in points that are not measured, drawn from their joint distribution.

    Args:
        belief: of all points.
        rows: those that may still be measured.
        best: the best measured one.
        chance: (rows): that a point's memory suffices; None: it does.
        margin: by what share one must be faster to count as beating the best.
    """
    if not len(rows):
        return Remaining(0.0, 0.0, margin, 0)
    chance = np.ones(len(rows)) if chance is None else chance
    likely = np.argsort(-chance * expected_gain(belief, rows, best), kind="stable")[:_LOOKED_AT]
    looked_at, chance = rows[likely], chance[likely]
    joint = np.concatenate([looked_at, [best]])
    covariance = belief.covariance(joint)
    # The largest eigenvalues are what the points have in common; a Cholesky factor would need them positive.
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    random = np.random.default_rng(0)
    logs = belief.mean[joint] + random.standard_normal((_DRAWS, len(joint))) @ root.T
    ahead = logs[:, :-1] - logs[:, -1:]
    ahead[random.random(ahead.shape) > chance] = -np.inf
    most = np.exp(ahead.max(axis=1)) - 1.0
    return Remaining(
        share=float(np.maximum(most, 0.0).mean()),
        beaten=float((most > margin).mean()),
        margin=margin,
        points=len(rows),
    )
