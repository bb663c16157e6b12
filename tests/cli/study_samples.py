"""Studies with trials as a tuning run leaves them, for commands that only read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.models import resolve_model
from autotune.study import Study, StudyInputs
from autotune.tuning.folders import trial_id
from autotune.tuning.handover import remember
from autotune.tuning.task import model_digest
from trials.ds_config import deepspeed_config
from trials.wire import Outcome, Phase, Point, TrialResult

MIB = 2**20
GOOD = Point(micro_batch_size=4, gradient_accumulation_steps=2, lora_rank=16)
SLOW = Point(micro_batch_size=1, gradient_accumulation_steps=8, lora_rank=32, checkpoint_fraction=1.0)
LARGE = Point(micro_batch_size=8, lora_rank=16)


def result_of(point: Point, outcome: Outcome = Outcome.OK, **values: Any) -> TrialResult:
    """What a trial of this point may report."""
    good: dict[str, Any] = {
        "tokens_per_second": 1000.0,
        "tokens_per_second_low": 990.0,
        "tokens_per_second_high": 1010.0,
        "required_device_bytes": 200 * MIB,
        "device_bytes": 220 * MIB,
        "host_peak_bytes": 500 * MIB,
        "lora_targets": ("q_proj", "v_proj"),
        "versions": {"torch": "2.13.0"},
        "ds_config": deepspeed_config(
            point, trainable_parameters=300_000, largest_parameter=65_536, device="cpu", torch_adam=True
        ),
    }
    shown = good if outcome in (Outcome.OK, Outcome.STOPPED) else {}
    phase = Phase.LATER_STEP if shown else Phase.BACKWARD
    return TrialResult(**{"trial_id": "t", "outcome": outcome, "phase": phase, **shown, **values})


def study_inputs(**values: Any) -> StudyInputs:
    """Inputs of a tuning of tiny-llama on the CPU."""
    return StudyInputs(
        **{
            "model": "tiny-llama",
            "model_digest": model_digest(resolve_model("tiny-llama")),
            "method": "lora",
            "seq_len": 128,
            "global_batch": 8,
            "budget_bytes": 2**30,
            "device": "cpu",
            "space_name": "lora",
            "space_digest": "0" * 16,
            **values,
        }
    )


def make_study(url: str, **inputs: Any) -> Study:
    """An empty study that knows its model."""
    study = Study.open(url, study_inputs(**inputs))
    remember(study, resolve_model("tiny-llama"), "autotune run --model tiny-llama", 12)
    return study


def add(study: Study, point: Point, result: TrialResult) -> int:
    """A finished trial."""
    number = study.begin(point)
    position = next(record.position for record in study.records() if record.number == number)
    study.finish(number, result.model_copy(update={"trial_id": trial_id(position, number)}))
    return number


def filled_study(folder: Path) -> Study:
    """A study of three trials in `s.db`: a confirmed winner, a slower one of a higher rank, an OOM."""
    study = make_study(f"sqlite:///{folder / 's.db'}")
    speed = {"tokens_per_second": 2000.0, "tokens_per_second_low": 1990.0, "tokens_per_second_high": 2010.0}
    add(study, GOOD, result_of(GOOD, **speed))
    add(study, SLOW, result_of(SLOW))
    add(study, LARGE, result_of(LARGE, Outcome.OOM, message="out of memory", oom_short_bytes=30 * MIB))
    confirmed = result_of(GOOD, tokens_per_second=1950.0, required_device_bytes=210 * MIB)
    study.add_confirmation(GOOD, confirmed)
    return study
