"""Studies and results as trials leave them, for what needs no trial of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.study import Study, StudyInputs
from trials.wire import Outcome, Phase, Point, TrialResult

MIB = 2**20


def trial_result(speed: float | None = None, outcome: Outcome = Outcome.OK, **values: Any) -> TrialResult:
    """A result; a speed has a narrow interval around it."""
    known: dict[str, Any] = {"trial_id": "t", "outcome": outcome, "phase": Phase.LATER_STEP}
    if speed is not None:
        known |= {
            "tokens_per_second": speed,
            "tokens_per_second_low": 0.999 * speed,
            "tokens_per_second_high": 1.001 * speed,
            "required_device_bytes": 100 * MIB,
        }
    return TrialResult(**{**known, **values})


def empty_study(folder: Path, **inputs: Any) -> Study:
    """A study with a budget of 1 GiB."""
    known: dict[str, Any] = {
        "model": "tiny-llama",
        "model_digest": "m",
        "method": "lora",
        "seq_len": 128,
        "global_batch": 8,
        "budget_bytes": 2**30,
        "device": "cpu",
        "space_name": "lora",
        "space_digest": "s",
    }
    return Study.open(f"sqlite:///{folder / 's.db'}", StudyInputs(**{**known, **inputs}))


def add(study: Study, point: Point, result: TrialResult) -> int:
    """A finished trial's number."""
    number = study.begin(point)
    study.finish(number, result)
    return number
