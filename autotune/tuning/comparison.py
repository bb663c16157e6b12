"""What was predicted of a trial beside what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trials.wire import TrialResult

if TYPE_CHECKING:
    from autotune.prediction import Prediction

FIGURES = (
    "peak_allocated_bytes",
    "setup_peak_allocated_bytes",
    "required_device_bytes",
    "device_bytes",
    "outside_allocator_bytes",
    "host_peak_bytes",
)
PHASES = "phase_peak_allocated_bytes"
# What a trial on a reused engine repeats from the one that built it: it shows nothing of its own.
OF_THE_BUILD = frozenset({"setup_peak_allocated_bytes"})


@dataclass(frozen=True)
class Compared:
    """One figure, predicted and measured.

    Attributes:
        figure: its name in a trial's result, or a phase, whose peak of allocated memory it then is.
        predicted_bytes: before the trial.
        measured_bytes: by it.
    """

    figure: str
    predicted_bytes: int
    measured_bytes: int

    @property
    def off(self) -> float:
        """The prediction's error as a share of what was measured: positive where too much was predicted."""
        return self.predicted_bytes / self.measured_bytes - 1.0

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "predicted_bytes": self.predicted_bytes,
            "measured_bytes": self.measured_bytes,
            "off": self.off,
        }


def recorded(prediction: Prediction, correction_bytes: Mapping[str, int]) -> dict[str, Any]:
    """A prediction as a study keeps it beside its trial.

    Args:
        prediction: with its corrections.
        correction_bytes: what they added, by phase; the prediction less this is as it was made.
    """
    names = (*FIGURES, "confirmed_required_device_bytes", PHASES, "breakdown", "phase", "exact")
    values = {name: value for name, value in prediction.model_dump(mode="json").items() if name in names}
    if not prediction.exact:
        # Only a replay tells what the allocator would reserve.
        del values["device_bytes"]
    return values | {"correction_bytes": dict(correction_bytes)}


def compared(predicted: Mapping[str, Any], result: TrialResult) -> list[Compared]:
    """The figures that were both predicted and measured, then the phases.

    Args:
        predicted: as `recorded` gives it.
        result: the trial's.
    """
    shown = [name for name in FIGURES if result.build == "fresh" or name not in OF_THE_BUILD]
    pairs = [(name, predicted.get(name), getattr(result, name)) for name in shown]
    phases = predicted.get(PHASES) or {}
    measured = result.phase_peak_allocated_bytes
    pairs += [(phase, phases[phase], measured[phase]) for phase in phases if phase in measured]
    return [Compared(name, ours, theirs) for name, ours, theirs in pairs if ours and theirs]
