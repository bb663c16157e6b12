"""Points of one training with what they have to do, worked out once."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.throughput.coefficients import Vector
from autotune.throughput.likeness import Features, features_of
from autotune.throughput.physics import SERIAL, SHARPNESS, Times, step_times
from autotune.throughput.work import Training, Work, work_of
from trials.wire import Point


class Worked:
    """Points with their work and features, row by row; a point may stand there twice.

    Attributes:
        training: what is trained, on what.
        points: as they were given.
        work: of the points.
        features: of the points.
        row: where each point stands (the last place, if several).
    """

    def __init__(self, training: Training, points: Sequence[Point]) -> None:
        self.training = training
        self.points = tuple(points)
        self.work: Work = work_of(training, self.points)
        self.features: Features = features_of(self.points)
        self.row = {point: row for row, point in enumerate(self.points)}
        self._sharpness = SHARPNESS if training.rates.device == "cuda" else SERIAL

    def times(self, log_coefficients: Vector) -> Times:
        """The physics' step times."""
        return step_times(self.work, log_coefficients, sharpness=self._sharpness)
