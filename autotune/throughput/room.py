"""The chance that memory suffices, where a rough figure is all there is, and outcomes to learn from.

What a point needs is known up to a factor: exactly where it was predicted, roughly where it follows from
sizes alone. So is the limit, in the same measure: the budget, or nothing at all. Every trial that ran says
that the limit is above its need, every one that ran out of memory that it is below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from autotune.throughput.coefficients import Vector
from autotune.throughput.shape import ModelShape
from autotune.throughput.work import Training
from trials.wire import Point

# By what factor a rough figure may be off, in the logarithm, and a predicted one.
ROUGH = 0.18
PREDICTED = 0.01
_LIMITS = 400
# Copies of the logits in fp32, of a layer's activations in multiples of its width.
_LOGIT_BYTES = 14.0
_ACTIVATION_WIDTHS = 20.0


@dataclass(frozen=True)
class Tried:
    """How a trial ended.

    Attributes:
        need: of its point, in bytes as far as known.
        fitted: whether its memory sufficed.
    """

    need: float
    fitted: bool


def chance_of_room(
    needs: Vector, tried: Sequence[Tried], *, limit_bytes: float | None, doubt: float = ROUGH
) -> Vector:
    """The chance that each need stays below the limit.

    Args:
        needs: (points): in bytes, as far as known.
        tried: trials so far.
        limit_bytes: the budget in the same measure; None: anything.
        doubt: standard deviation of a need's logarithm.
    """
    if limit_bytes is None and all(one.fitted for one in tried):
        return np.ones(len(needs))
    logs = np.log(np.concatenate([needs, [one.need for one in tried]]))
    centre = logs.max() if limit_bytes is None else np.log(limit_bytes)
    width = np.ptp(logs) + 4 * doubt if limit_bytes is None else 8 * doubt
    limits = np.linspace(centre - width, centre + width, _LIMITS)
    weight = np.zeros(_LIMITS) if limit_bytes is None else -0.5 * ((limits - centre) / (2 * doubt)) ** 2
    for one in tried:
        above = (limits - np.log(one.need)) / doubt
        weight = weight + log_ndtr(above if one.fitted else -above)
    weight = np.exp(weight - weight.max())
    fits = ndtr((limits[:, None] - np.log(needs)) / doubt)
    chance: Vector = (weight[:, None] * fits).sum(axis=0) / weight.sum()
    return chance


def rough_needs(training: Training, points: Sequence[Point]) -> Vector:
    """Device memory of each point in bytes, from sizes alone: enough to tell more from less.

    Args:
        training: what is trained.
        points: in any order.
    """
    shape = training.shape()
    return np.array([_rough_need(training, shape, point) for point in points])


def _rough_need(training: Training, shape: ModelShape, point: Point) -> float:
    width, total = 4.0 if point.precision == "fp32" else 2.0, shape.total_parameters
    adapted = sum((m.rows + m.columns) * m.copies for m in shape.adapted(training.lora_targets))
    trained = total if point.lora_rank == 0 else shape.layers * point.lora_rank * adapted
    share = 1 / training.processes
    per_weight = {"none": width, "nf4": 0.6, "int8": 1.1}[point.quantization]
    weights = per_weight * total * (share if point.zero_stage == 3 else 1.0)
    weights *= 0.05 if point.offload.endswith("+parameters") else 1.0
    state = (6.0 if point.optimizer != "adamw" else 12.0) * trained * (share if point.zero_stage else 1.0)
    state *= 0.0 if point.offload != "none" else 1.0
    gradients = (width if point.zero_stage else 4.0) * trained
    tokens = point.micro_batch_size * training.seq_len
    inner = sum(m.columns * m.active for m in shape.matrices)
    layer = width * tokens * (_ACTIVATION_WIDTHS * shape.hidden + 1.5 * inner)
    kept = shape.layers * (1 - point.checkpoint_fraction)
    activations = layer * max(1.0, kept) + width * tokens * shape.hidden * shape.layers
    logits = tokens * shape.vocabulary * (0.5 if point.liger_kernel else _LOGIT_BYTES)
    return weights + state + gradients + activations + logits
