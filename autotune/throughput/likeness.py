"""How alike two points are: what physics does not explain of one, it likely does not explain of the other.

A product of the usual squared exponential over the sizes and of a factor for each other knob that differs.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.throughput.coefficients import Vector
from trials.wire import Point

# A doubling of the micro batch, half of the layers: neighbours within which the rest is alike.
_DOUBLINGS = 1.5
_SHARE = 0.5
_ACCUMULATION_DOUBLINGS = 3.0
# What two points that differ in one other knob still have in common.
_IN_COMMON = 0.6

_OTHER_KNOBS = (
    "zero_stage",
    "offload",
    "precision",
    "lora_rank",
    "quantization",
    "optimizer",
    "attention",
    "liger_kernel",
    "zero_bucket_elements",
)


@dataclass(frozen=True)
class Features:
    """Points as columns.

    Attributes:
        sizes: (points, 3): micro batch, share of checkpointed layers, accumulation, on their scales.
        knobs: (points, other knobs): a number for each value.
    """

    sizes: Vector
    knobs: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.int64]) -> Features:
        """Some of the points."""
        return Features(self.sizes[rows], self.knobs[rows])


def features_of(points: Sequence[Point]) -> Features:
    """The points' features, in their order."""
    sizes = [
        (
            math.log2(point.micro_batch_size) / _DOUBLINGS,
            point.checkpoint_fraction / _SHARE,
            math.log2(point.gradient_accumulation_steps) / _ACCUMULATION_DOUBLINGS,
        )
        for point in points
    ]
    knobs = [[_code(getattr(point, name)) for name in _OTHER_KNOBS] for point in points]
    return Features(
        np.array(sizes).reshape(len(points), 3),
        np.array(knobs, dtype=np.int64).reshape(len(points), len(_OTHER_KNOBS)),
    )


def likeness(one: Features, other: Features) -> Vector:
    """(points of one, points of the other): 1 for equal points, towards 0 for unlike ones."""
    squares = ((one.sizes[:, None, :] - other.sizes[None, :, :]) ** 2).sum(axis=2)
    differing = (one.knobs[:, None, :] != other.knobs[None, :, :]).sum(axis=2)
    like: Vector = np.exp(-0.5 * squares) * _IN_COMMON**differing
    return like


def _code(value: str | int | None) -> int:
    """The same number for the same value in every process, which Python's own hash of a text is not."""
    if isinstance(value, str):
        return zlib.crc32(value.encode())
    return -1 if value is None else int(value)
