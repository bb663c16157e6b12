"""What is believed of the speed of points, given what was measured of others.

The logarithm of a step's time is the physics' with its coefficients, plus a rest that is alike for like
points (a Gaussian process), plus noise. The coefficients are at their most probable values; around those the
physics is taken as linear, so that all uncertainty is one joint normal distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from autotune.throughput.coefficients import Prior, Vector, shipped_prior
from autotune.throughput.likeness import likeness
from autotune.throughput.physics import Times
from autotune.throughput.worked import Worked
from trials.wire import Point

# Standard deviation of what the physics does not explain, in the logarithm.
REST = {"cuda": 0.08, "cpu": 0.12}
# A measurement repeats no better than this in another process.
LEAST_NOISE = 0.02
# What was thought before counts as so many observations against what is seen.
_THOUGHT_OBSERVATIONS = 3.0
_ITERATIONS = 30
_LARGEST_STEP = 0.5
_CONVERGED = 1e-4

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Observation:
    """One measured throughput.

    Attributes:
        point: what was measured.
        tokens_per_second: over whole optimizer steps, all processes; above 0.
        noise: standard deviation of its logarithm.
    """

    point: Point
    tokens_per_second: float
    noise: float = LEAST_NOISE


class Belief:
    """The speed of some points as one joint distribution of log tokens per second.

    Attributes:
        points: in the order of all that follows.
        mean: (points): expected log tokens per second.
        deviation: (points): its standard deviation.
        log_coefficients: the most probable ones.
    """

    def __init__(
        self, space: Worked, observations: Sequence[Observation] = (), prior: Prior | None = None
    ) -> None:
        """Learn from observations.

        Args:
            space: the points to know about.
            observations: of any points of the same training.
            prior: of the coefficients; None: the shipped one.
        """
        self.points = space.points
        self._space = space
        self._rest = REST[space.training.rates.device]
        prior = prior or shipped_prior(space.training.rates.device)
        seen = Worked(space.training, [one.point for one in observations])
        noise = np.array([max(LEAST_NOISE, one.noise) for one in observations])
        log_seconds = np.log(seen.work.tokens) - np.log([one.tokens_per_second for one in observations])
        alike = likeness(seen.features, seen.features)
        own = self._rest**2 * alike + np.diag(noise**2)
        self.log_coefficients, times = _most_probable(seen, log_seconds, own, prior)
        scale = _surprise(log_seconds - times.log_seconds, own)
        if scale > 1.0:
            # This machine is noisier, or this model stranger, than was thought: everything is less sure.
            own, self._rest = scale * own, scale**0.5 * self._rest
            self.log_coefficients, times = _most_probable(seen, log_seconds, own, prior)
        here = space.times(self.log_coefficients)
        self.mean = np.log(space.work.tokens) - here.log_seconds
        self._spread = prior.spread
        self._slopes = here.slopes
        variance = (here.slopes**2 * prior.spread**2).sum(axis=1) + self._rest**2
        # Zero rows where nothing was observed: all below then leaves the prior as it is.
        self._explained = np.zeros((0, len(space.points)))
        if observations:
            shared = self._rest**2 * likeness(space.features, seen.features)
            self.mean = self.mean - shared @ cho_solve(cho_factor(own), log_seconds - times.log_seconds)
            scaled = times.slopes * prior.spread
            cross = (here.slopes * prior.spread) @ scaled.T + shared
            lower = np.linalg.cholesky(scaled @ scaled.T + own)
            self._explained = np.linalg.solve(lower, cross.T)
            variance = variance - (self._explained**2).sum(axis=0)
        self.deviation = np.sqrt(np.maximum(variance, 1e-8))

    def covariance(self, rows: Rows, others: Rows | None = None) -> Vector:
        """Joint covariance of the log tokens per second of some points (positions in `points`)."""
        others = rows if others is None else others
        features = self._space.features
        slopes = (self._slopes[rows] * self._spread, self._slopes[others] * self._spread)
        prior = slopes[0] @ slopes[1].T + self._rest**2 * likeness(features.take(rows), features.take(others))
        joint: Vector = prior - self._explained[:, rows].T @ self._explained[:, others]
        return joint

    def rows_of(self, points: Sequence[Point]) -> Rows:
        """Where points stand in `points`; they must be among them."""
        return np.array([self._space.row[point] for point in points], dtype=np.int64)

    @property
    def step_seconds(self) -> Vector:
        """(points): the median of what is believed, of whole optimizer steps."""
        seconds: Vector = self._space.work.tokens / self.tokens_per_second
        return seconds

    @property
    def tokens_per_second(self) -> Vector:
        """(points): the median of what is believed."""
        speeds: Vector = np.exp(self.mean)
        return speeds


def _most_probable(seen: Worked, log_seconds: Vector, own: Vector, prior: Prior) -> tuple[Vector, Times]:
    """The coefficients that observations and prior make most probable, by Gauss-Newton.

    Args:
        seen: the observed points.
        log_seconds: of their steps, as measured.
        own: covariance of what coefficients do not explain: rest and noise.
        prior: of the coefficients.
    """
    found = prior.mean.copy()
    times = seen.times(found)
    if not len(log_seconds):
        return found, times
    factor = cho_factor(own)
    precision = np.diag(prior.spread**-2.0)
    for _ in range(_ITERATIONS):
        weighed = cho_solve(factor, times.slopes)
        slope = weighed.T @ (log_seconds - times.log_seconds) - precision @ (found - prior.mean)
        step = np.linalg.solve(times.slopes.T @ weighed + precision, slope)
        found = found + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        times = seen.times(found)
        if np.abs(step).max() < _CONVERGED:
            break
    return found, times


def _surprise(rest: Vector, own: Vector) -> float:
    """By how much the variance of what coefficients do not explain exceeds what was thought; at least 1.

    Args:
        rest: what the most probable coefficients leave of each observation.
        own: the covariance it should have.
    """
    if not len(rest):
        return 1.0
    squares = float(rest @ cho_solve(cho_factor(own), rest))
    return max(1.0, (_THOUGHT_OBSERVATIONS + squares) / (_THOUGHT_OBSERVATIONS + len(rest)))
