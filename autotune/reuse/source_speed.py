"""The speed of configurations as one study's trials tell it, moved to another length or size of model.

Seconds per token are taken as a sum of costs, none below zero, fitted to the study's trials:

    arithmetic, the same for every point                    grows with the parameters
    recomputing, by the share of checkpointed layers        grows with the parameters
    launching kernels, by one over the micro batch's tokens grows with the layers
    the optimizer step, by one over a step's tokens         grows with the parameters
    each value of each other knob                           grows with the parameters

It only has to rank points that the study has seen the like of; `autotune.throughput` knows more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.reuse.effects import KNOBS
from autotune.reuse.observations import STOPPED_WEIGHT, speed_of
from autotune.reuse.profile import Profile
from autotune.reuse.similar import Similar
from autotune.study.record import Record
from trials.wire import Outcome, Point

# Costs of their own have these two.
OTHER_KNOBS = tuple(knob for knob in KNOBS if knob not in ("micro_batch_size", "checkpoint_fraction"))
# Four costs that every point has; with fewer points they are not told apart.
LEAST_POINTS = 4
# Pulls costs towards zero where the trials do not tell them apart, by so little of the usual cost.
PENALTY = 0.02

Row = npt.NDArray[np.float64]
Value = tuple[str, Any]


@dataclass(frozen=True)
class SourceSpeed:
    """The costs of one study's training.

    Attributes:
        profile: the training.
        costs: seconds per token of arithmetic and of recomputing everything; seconds per micro batch; seconds
            per optimizer step.
        knobs: seconds per token of each other knob's values that were seen.
    """

    profile: Profile
    costs: tuple[float, float, float, float]
    knobs: dict[Value, float]

    def tokens_per_second(self, point: Point, target: Profile) -> float:
        """The speed of a point in another training like the study's; of one process."""
        larger = target.parameters / self.profile.parameters
        deeper = target.layers / self.profile.layers
        arithmetic, recomputing, launching, step = (
            cost * part for cost, part in zip(self.costs, _parts(point, target.seq_len), strict=True)
        )
        others = sum(self._other(name, getattr(point, name)) for name in OTHER_KNOBS)
        return 1.0 / (larger * (arithmetic + recomputing + step + others) + deeper * launching)

    def _other(self, name: str, value: Any) -> float:
        """A value's cost; of one that was not seen, the mean of the others."""
        known = [cost for (knob, _), cost in self.knobs.items() if knob == name]
        return self.knobs.get((name, value), sum(known) / len(known) if known else 0.0)


def speed_of_study(one: Similar) -> SourceSpeed | None:
    """The costs that a study's trials tell; None where they are too few."""
    from scipy.optimize import nnls

    seen = [(record, speed) for record in one.records if (speed := speed_of(record)) is not None]
    if len(seen) < LEAST_POINTS:
        return None
    points = [record.point for record, _ in seen]
    values = _values(points)
    parts = np.array([_parts(point, one.profile.seq_len) for point in points])
    ones = np.array([[float(getattr(point, name) == value) for name, value in values] for point in points])
    design = np.hstack([parts, ones.reshape(len(points), len(values))])
    speeds = np.array([speed for _, speed in seen])
    weights = np.array([_weight(record) for record, _ in seen])
    # Errors count relative to the time itself; columns are scaled, so that the penalty is alike for all.
    rows = design * (speeds * weights)[:, None]
    scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    penalty = PENALTY * np.eye(design.shape[1])
    # The first cost bears what nothing else explains.
    penalty[0, 0] = 0.0
    costs, _ = nnls(np.vstack([rows / scale, penalty]), np.concatenate([weights, np.zeros(design.shape[1])]))
    costs = costs / scale
    if not costs.sum() > 0:
        return None
    first, second, third, fourth = (float(cost) for cost in costs[:4])
    knobs = {value: float(cost) for value, cost in zip(values, costs[4:], strict=True)}
    return SourceSpeed(one.profile, (first, second, third, fourth), knobs)


def believed_speed(similar: Sequence[Similar], target: Profile) -> Callable[[Point], float] | None:
    """The speed of a point by all studies together, each counted by its trust.

    Returns:
        None where no study has enough trials.
    """
    known = [(one.trust, fitted) for one in similar if (fitted := speed_of_study(one)) is not None]
    if not known:
        return None

    def speed(point: Point) -> float:
        logs = [trust * np.log(each.tokens_per_second(point, target)) for trust, each in known]
        return float(np.exp(sum(logs) / sum(trust for trust, _ in known)))

    return speed


def _parts(point: Point, seq_len: int) -> tuple[float, float, float, float]:
    tokens = point.micro_batch_size * seq_len
    return 1.0, point.checkpoint_fraction, 1.0 / tokens, 1.0 / (tokens * point.gradient_accumulation_steps)


def _values(points: Sequence[Point]) -> list[Value]:
    """The values of the knobs that varied."""
    found = []
    for name in OTHER_KNOBS:
        values = dict.fromkeys(getattr(point, name) for point in points)
        if len(values) > 1:
            found += [(name, value) for value in values]
    return found


def _weight(record: Record) -> float:
    assert record.result is not None
    return STOPPED_WEIGHT if record.result.outcome is Outcome.STOPPED else 1.0
