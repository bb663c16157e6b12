"""Points as small vectors of integers, for samplers.

A knob is a field of the point that varies, as its position among its values in order. Two things keep
impossible combinations rare, which a sampler would otherwise keep proposing: ZeRO stage and offload are one
knob, and an accumulation that follows from the micro batch is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autotune.space.fields import point_fields
from trials.wire import Point

Code = tuple[int, ...]

ORDERED = {
    "micro_batch_size",
    "gradient_accumulation_steps",
    "checkpoint_fraction",
    "lora_rank",
    "zero_bucket_elements",
}
TOGETHER = ("zero_stage", "offload")


@dataclass(frozen=True)
class Knob:
    """Something that varies between points.

    Attributes:
        name: as Optuna knows it.
        fields: the fields of `Point` it stands for.
        positions: the position of each combination of their values.
        ordered: whether neighbouring positions are alike.
    """

    name: str
    fields: tuple[str, ...]
    positions: dict[tuple[Any, ...], int]
    ordered: bool

    def distribution(self) -> BaseDistribution:
        """The knob as a parameter of an Optuna study."""
        count = len(self.positions)
        return IntDistribution(0, count - 1) if self.ordered else CategoricalDistribution(range(count))

    def position(self, point: Point) -> int:
        """The knob's position in a point."""
        return self.positions[tuple(getattr(point, field) for field in self.fields)]


class Encoding:
    """The knobs that tell some points apart, and the points' codes. Different points have different codes."""

    def __init__(self, points: Iterable[Point]) -> None:
        """Finds the knobs.

        Args:
            points: every point that will be encoded.
        """
        distinct = set(points)
        self.knobs = tuple(knob for knob in _knobs(distinct) if len(knob.positions) > 1)
        self.distributions = {knob.name: knob.distribution() for knob in self.knobs}

    def encode(self, point: Point) -> Code:
        """The positions of all knobs in a point."""
        return tuple(knob.position(point) for knob in self.knobs)

    def parameters(self, point: Point) -> dict[str, int]:
        """The point's code as the parameters of an Optuna study."""
        return {knob.name: knob.position(point) for knob in self.knobs}

    def nearest(self, code: Code, points: Sequence[Point]) -> Point:
        """The point that differs least from a code; the first of several.

        An ordered knob counts by how far it is off in its whole range, any other by whether it is off.
        """
        codes = np.array([self.encode(point) for point in points])
        return points[int(np.argmin(self._distances(codes, np.array(code))))]

    def _distances(self, codes: npt.NDArray[Any], code: npt.NDArray[Any]) -> npt.NDArray[Any]:
        distances = np.zeros(len(codes))
        for column, knob in enumerate(self.knobs):
            off = np.abs(codes[:, column] - code[column])
            distances += off / (len(knob.positions) - 1) if knob.ordered else off > 0
        return distances


def _knobs(points: set[Point]) -> Iterable[Knob]:
    fields = point_fields()
    for name in fields:
        if name == TOGETHER[1] or (
            name == "gradient_accumulation_steps" and _follows_from_micro_batch(points)
        ):
            continue
        together = TOGETHER if name == TOGETHER[0] else (name,)
        values = {tuple(getattr(point, field) for field in together) for point in points}
        in_order = sorted(
            values,
            key=lambda value: [
                fields[field].order(part) for field, part in zip(together, value, strict=True)
            ],
        )
        positions = {value: position for position, value in enumerate(in_order)}
        yield Knob("+".join(together), together, positions, name in ORDERED)


def _follows_from_micro_batch(points: set[Point]) -> bool:
    pairs = {(point.micro_batch_size, point.gradient_accumulation_steps) for point in points}
    return len(pairs) == len({micro_batch for micro_batch, _ in pairs})
