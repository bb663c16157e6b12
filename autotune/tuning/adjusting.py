"""A prediction with what this machine is known to do differently: its share outside the allocator, and what
trials measured beyond the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trials.wire import Phase

if TYPE_CHECKING:
    from autotune.prediction import Prediction

# In these a trial's peaks decide what it needs; a winner also evaluates and saves.
TRAINING = (Phase.LOAD, Phase.START, Phase.FIRST_STEP, Phase.LATER_STEP)
SETUP = (Phase.LOAD, Phase.START)
STEPS = (Phase.FIRST_STEP, Phase.LATER_STEP)
# Trials measure whole optimizer steps: what those lack, the parts of a step lack.
_WITHIN_STEP = (Phase.FORWARD, Phase.BACKWARD)
CORRECTION = "measured beyond prediction"


def adjusted(prediction: Prediction, outside_bytes: int, deltas: Mapping[str, int]) -> Prediction:
    """The prediction for this machine.

    Args:
        prediction: as it was made.
        outside_bytes: the machine's share outside the allocator; 0: not known, the prediction's own is kept.
        deltas: bytes to add to a phase's peak, by phase.
    """
    before = prediction.phase_peak_allocated_bytes
    phases = {name: max(0, size + _delta(name, deltas)) for name, size in before.items()}
    outside = outside_bytes or prediction.outside_allocator_bytes
    moved = outside - prediction.outside_allocator_bytes
    grown = _largest(phases, TRAINING) - _largest(before, TRAINING)
    peak = prediction.peak_allocated_bytes + _largest(phases, STEPS) - _largest(before, STEPS)
    required = prediction.required_device_bytes + grown + moved
    confirmed = prediction.confirmed_required_device_bytes
    afterwards = confirmed - prediction.required_device_bytes
    breakdown = dict(prediction.breakdown)
    if peak != prediction.peak_allocated_bytes:
        breakdown[CORRECTION] = peak - prediction.peak_allocated_bytes
    return prediction.model_copy(
        update={
            "peak_allocated_bytes": peak,
            "setup_peak_allocated_bytes": prediction.setup_peak_allocated_bytes
            + _largest(phases, SETUP)
            - _largest(before, SETUP),
            "phase_peak_allocated_bytes": phases,
            "peak_reserved_bytes": prediction.peak_reserved_bytes + grown,
            "required_device_bytes": required,
            # Evaluation and saving only matter where they need more than training.
            "confirmed_required_device_bytes": max(required, confirmed + moved) if afterwards else required,
            "device_bytes": prediction.device_bytes + grown + moved,
            "outside_allocator_bytes": outside,
            "breakdown": breakdown,
        }
    )


def least_device_bytes(prediction: Prediction) -> int:
    """Below this nothing can work: what is allocated at the peak, without a byte lost between blocks."""
    return _largest(prediction.phase_peak_allocated_bytes, TRAINING) + prediction.outside_allocator_bytes


def _delta(phase: str, deltas: Mapping[str, int]) -> int:
    return deltas.get(Phase.LATER_STEP if phase in _WITHIN_STEP else phase, 0)


def _largest(phases: Mapping[str, int], names: tuple[Phase, ...]) -> int:
    return max((phases[name] for name in names if name in phases), default=0)
