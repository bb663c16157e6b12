"""From work and coefficients to the time of an optimizer step, with its slope in each coefficient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.throughput.coefficients import PARTS, Vector
from autotune.throughput.work import Work

# Host and device run side by side; where both take equally long, they get in each other's way by 2**(1/6).
SHARPNESS = 6.0
# On a CPU there is one processor for both.
SERIAL = 1.0

_DEVICE, _HOST, _WAIT, _STEP = (part == PARTS for part in ("device", "host", "wait", "step"))


@dataclass(frozen=True)
class Times:
    """The time of an optimizer step of each of several points.

    Attributes:
        log_seconds: (points): natural logarithm of the step's seconds.
        slopes: (points, coefficients): derivative of that by each coefficient's logarithm.
    """

    log_seconds: Vector
    slopes: Vector


def step_times(work: Work, log_coefficients: Vector, *, sharpness: float = SHARPNESS) -> Times:
    """The time of a step: micro batches, of which the longer of host and device counts, and the optimizer.

    Args:
        work: of the points.
        log_coefficients: natural logarithms, in the order of `COEFFICIENTS`.
        sharpness: how hard the longer of host and device counts alone; 1 adds them up.
    """
    parts = work.seconds * np.exp(log_coefficients)
    device, host = parts[:, _DEVICE].sum(axis=1), parts[:, _HOST].sum(axis=1)
    longer = np.maximum(device, host)
    together = longer * ((device / longer) ** sharpness + (host / longer) ** sharpness) ** (1 / sharpness)
    step = work.accumulation * (together + parts[:, _WAIT].sum(axis=1)) + parts[:, _STEP].sum(axis=1)
    weights = np.ones_like(parts)
    weights[:, _DEVICE] = ((device / together) ** (sharpness - 1))[:, None]
    weights[:, _HOST] = ((host / together) ** (sharpness - 1))[:, None]
    weights[:, ~_STEP] *= work.accumulation[:, None]
    return Times(np.log(step), parts * weights / step[:, None])
