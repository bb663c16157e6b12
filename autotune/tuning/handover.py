"""The study's winner as the export takes it; made from the study alone, so it can be made again later."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.export import Winner
from autotune.tuning.confirm import Chosen
from trials.wire import ModelSpec

if TYPE_CHECKING:
    from autotune.running import Machine
    from autotune.study import Study
    from autotune.study.measured_on import MeasuredOn

MODEL_NOTE = "model"
COMMAND_NOTE = "command"
TRIALS_NOTE = "trials"


def remember(study: Study, model: ModelSpec, command: str, trials: int) -> None:
    """Keep in the study what the export and `autotune status` need and its inputs do not hold."""
    dumped = model.model_dump(mode="json")
    if study.note(MODEL_NOTE) != dumped:
        study.set_note(MODEL_NOTE, dumped)
    if command and study.note(COMMAND_NOTE) != command:
        study.set_note(COMMAND_NOTE, command)
    if study.note(TRIALS_NOTE) != trials:
        study.set_note(TRIALS_NOTE, trials)


def measured_on(machine: Machine) -> MeasuredOn:
    """What of the machine a study keeps: what decides memory and speed."""
    from autotune.study.measured_on import MeasuredOn

    return MeasuredOn(
        gpu_name=machine.gpu_name,
        driver=machine.driver,
        host_cpus=os.cpu_count(),
        versions=dict(machine.versions),
    )


def winner_of(study: Study, chosen: Chosen) -> Winner:
    """The winner with all that is needed to write it down for a trainer.

    Raises:
        UsageError: the study was not made by `autotune run` and does not know its model.
    """
    inputs, model = study.inputs, model_of(study)
    result = chosen.record.result
    assert result is not None, "a winner was measured"
    return Winner(
        study=study.name,
        model=model,
        hub_id=_hub_id(model.name),
        seq_len=inputs.seq_len,
        global_batch=inputs.global_batch,
        gpus=inputs.gpus,
        device=inputs.device,
        point=chosen.record.point,
        result=result,
        confirmation=chosen.confirmation,
        lora_targets=inputs.lora_targets,
        gpu_budget_bytes=inputs.budget_bytes,
        load_weights=inputs.load_weights,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=str(study.note(COMMAND_NOTE) or f"autotune run --study {study.name}"),
    )


def model_of(study: Study) -> ModelSpec:
    """The model that a study is about.

    Raises:
        UsageError: the study was not made by `autotune run` and does not know it.
    """
    note: Any = study.note(MODEL_NOTE)
    if note is None:
        raise UsageError(f"the study {study.name} does not hold its model", "run 'autotune run' on it once")
    return ModelSpec.model_validate(note)


def _hub_id(name: str) -> str | None:
    from autotune.models import list_cards

    return next((card.hub_id for card in list_cards() if card.name == name), None)
