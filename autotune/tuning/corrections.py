"""What measured trials taught about predictions: added to later ones, phase by phase.

A prediction that is off is off for a reason that a kind of configuration shares (a library's other version, a
kernel's other workspace), so what is learned from one trial is added to the predictions of its kind. What
counts is the median over the kind's trials, so that one odd measurement does not move all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from autotune.running.kept_json import KeptJson
from trials.wire import Point

# Less than this is as exact as a trial can be predicted.
TOLERANCE = 0.005
# Of each kind and phase the last so many trials count.
KEPT = 15
_KIND_FIELDS = ("zero_stage", "offload", "precision", "quantization", "optimizer", "attention")


def kind_of(point: Point) -> str:
    """The kind of configuration whose predictions are off alike."""
    words = [str(getattr(point, name)) for name in _KIND_FIELDS]
    words.append("lora" if point.lora_rank else "full")
    if point.liger_kernel:
        words.append("liger")
    return " ".join(words)


@dataclass(frozen=True)
class Seen:
    """One phase of one trial.

    Attributes:
        predicted_bytes: as it was predicted, without any correction.
        measured_bytes: by the trial.
        model: digest of what was trained.
    """

    predicted_bytes: int
    measured_bytes: int
    model: str

    @property
    def delta_bytes(self) -> int:
        """What the prediction lacked."""
        return self.measured_bytes - self.predicted_bytes

    @property
    def share(self) -> float:
        """The same as a share of what was predicted."""
        return self.delta_bytes / self.predicted_bytes


class Corrections:
    """The corrections that hold for one model on one machine, kept for its next study.

    Args:
        kept: the machine's file.
        key: what they hold for: GPU, library versions, model type.
        model: digest of what is trained now. A delta in bytes holds for the model it was seen of; of another
            one of the same type it is taken in proportion, never larger, until this model has been measured.

    Attributes:
        version: changes when something was learned.
    """

    def __init__(self, kept: KeptJson, key: str, model: str) -> None:
        self._kept = kept
        self._key = key
        self._model = model
        self._seen = _decoded(kept.read().get(key))
        self.version = 0

    def learn(self, point: Point, predicted: Mapping[str, int], measured: Mapping[str, int]) -> None:
        """Keep what a trial showed.

        Args:
            point: what was trained.
            predicted: peak allocated bytes by phase, without any correction.
            measured: the same by the trial; phases it did not complete are missing.
        """
        phases = self._seen.setdefault(kind_of(point), {})
        for phase in predicted:
            if predicted[phase] > 0 and measured.get(phase, 0) > 0:
                seen = [*phases.get(phase, []), Seen(predicted[phase], measured[phase], self._model)]
                phases[phase] = seen[-KEPT:]
        self.version += 1
        self._kept.put(self._key, _encoded(self._seen))

    def delta_bytes(self, point: Point, phase: str, predicted_bytes: int) -> int:
        """What is to be added to a prediction of a phase; 0 where predictions of this kind are right."""
        seen = self._seen.get(kind_of(point), {}).get(phase, [])
        own = [one for one in seen if one.model == self._model]
        counted = own or seen
        if not counted or abs(median(one.share for one in counted)) <= TOLERANCE:
            return 0
        if own:
            return round(median(one.delta_bytes for one in own))
        return round(
            median(one.delta_bytes * min(1.0, predicted_bytes / one.predicted_bytes) for one in counted)
        )

    def deltas(self, point: Point, predicted: Mapping[str, int]) -> dict[str, int]:
        """The corrections of a prediction's phases, those that are none left out."""
        found = {phase: self.delta_bytes(point, phase, size) for phase, size in predicted.items()}
        return {phase: delta for phase, delta in found.items() if delta}


def _encoded(seen: Mapping[str, Mapping[str, list[Seen]]]) -> dict[str, Any]:
    return {
        kind: {
            phase: [[one.predicted_bytes, one.measured_bytes, one.model] for one in trials]
            for phase, trials in phases.items()
        }
        for kind, phases in seen.items()
    }


def _decoded(value: Any) -> dict[str, dict[str, list[Seen]]]:
    """What was kept; nothing where it is not what `_encoded` gives, for it will be learned again."""
    try:
        return {
            kind: {
                phase: [
                    Seen(int(predicted), int(measured), str(model))
                    for predicted, measured, model in trials
                    if predicted > 0 and measured > 0
                ]
                for phase, trials in phases.items()
            }
            for kind, phases in (value or {}).items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}
