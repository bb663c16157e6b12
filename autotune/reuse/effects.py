"""What a study taught about each knob: by which factor a value of it changes the speed, all else equal.

The logarithm of the throughput is taken as a sum of one term per knob value, fitted by least squares with a
penalty on the terms (ridge), so that a value seen once says little and one never seen says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from autotune.reuse.observations import speed_of
from autotune.reuse.similar import Similar
from autotune.study.record import Record
from trials.wire import Point

KNOBS = (
    "micro_batch_size",
    "checkpoint_fraction",
    "zero_stage",
    "offload",
    "lora_rank",
    "quantization",
    "optimizer",
    "precision",
    "attention",
    "liger_kernel",
    "zero_bucket_elements",
)
# As if each value had been seen so many more times without any effect.
PENALTY = 0.5
# Fewer points say nothing of knobs one by one.
LEAST_POINTS = 4

Value = tuple[str, Any]


@dataclass(frozen=True)
class KnobEffects:
    """Effects of knob values on speed.

    Attributes:
        log_ratios: for a knob and its value, the logarithm of the factor by which it changes the throughput
            against the average of what was measured.
        weights: for the same, how much is known of it: measurements times trust.
    """

    log_ratios: Mapping[Value, float]
    weights: Mapping[Value, float]

    def expected(self, point: Point) -> float:
        """The logarithm of the factor expected of a point; 0 for what nothing is known of."""
        return sum(self.log_ratios.get((knob, getattr(point, knob)), 0.0) for knob in KNOBS)

    def ranked(self, points: Iterable[Point]) -> list[Point]:
        """The points, those expected to be fastest first; equals in their order."""
        return sorted(points, key=lambda point: -self.expected(point))


def knob_effects(similar: Iterable[Similar]) -> KnobEffects:
    """The effects that similar studies showed, each counted by its trust and by what it saw of a value."""
    sums: dict[Value, float] = {}
    weights: dict[Value, float] = {}
    for one in similar:
        found, counts = _effects_of(one.records)
        for value, effect in found.items():
            weight = one.trust * counts[value]
            sums[value] = sums.get(value, 0.0) + weight * effect
            weights[value] = weights.get(value, 0.0) + weight
    known = {value: weight for value, weight in weights.items() if weight > 0}
    return KnobEffects({value: sums[value] / weight for value, weight in known.items()}, known)


def _effects_of(records: Sequence[Record]) -> tuple[dict[Value, float], dict[Value, int]]:
    """One study's effects, and how often it saw each value; only knobs that varied."""
    seen = [(record.point, speed) for record in records if (speed := speed_of(record)) is not None]
    varied = [knob for knob in KNOBS if len({getattr(point, knob) for point, _ in seen}) > 1]
    if len(seen) < LEAST_POINTS or not varied:
        return {}, {}
    values = sorted({(knob, getattr(point, knob)) for point, _ in seen for knob in varied}, key=str)
    column = {value: position for position, value in enumerate(values)}
    design = np.zeros((len(seen), len(values)))
    for row, (point, _) in enumerate(seen):
        for knob in varied:
            design[row, column[knob, getattr(point, knob)]] = 1.0
    logs = np.array([log(speed) for _, speed in seen])
    centred = logs - logs.mean()
    normal = design.T @ design + PENALTY * np.eye(len(values))
    terms = np.linalg.solve(normal, design.T @ centred)
    counts = design.sum(axis=0)
    return (
        {value: float(terms[position]) for value, position in column.items()},
        {value: int(counts[position]) for value, position in column.items()},
    )
