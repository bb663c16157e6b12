"""The study's winner as the export takes it; made from the study alone, so it can be made again later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
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
# Absolute, where the model is a folder, else empty.
FOLDER_NOTE = "model_folder"
COMMAND_NOTE = "command"
TRIALS_NOTE = "trials"


def remember(study: Study, model: ModelSpec, command: str, trials: int) -> None:
    """Keep in the study what the export and `autotune status` need and its inputs do not hold."""
    dumped = model.model_dump(mode="json")
    if study.note(MODEL_NOTE) != dumped:
        study.set_note(MODEL_NOTE, dumped)
    folder = model_folder(model.name)
    if study.note(FOLDER_NOTE) != (folder or ""):
        study.set_note(FOLDER_NOTE, folder or "")
    if command and study.note(COMMAND_NOTE) != command:
        study.set_note(COMMAND_NOTE, command)
    if study.note(TRIALS_NOTE) != trials:
        study.set_note(TRIALS_NOTE, trials)


def measured_on(machine: Machine, rates: Mapping[str, float] | None = None) -> MeasuredOn:
    """What of the machine a study keeps: what decides memory and speed.

    Args:
        machine: it.
        rates: what it does per second, where that is known.
    """
    from autotune.study.measured_on import MeasuredOn

    return MeasuredOn(
        gpu_name=machine.gpu_name,
        driver=machine.driver,
        host_cpus=os.cpu_count(),
        versions=dict(machine.versions),
        rates=dict(rates or {}),
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
        folder=_folder_of(study, model.name),
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
        command=command_of(study),
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


def command_of(study: Study) -> str:
    """The command that reproduces the study, as it was typed; a note of an imported study may be anything."""
    typed = str(study.note(COMMAND_NOTE) or study.command("run --study"))
    return typed.encode("utf-8", "replace").decode("utf-8")


def model_folder(name: str) -> str | None:
    """The absolute path of the folder that a model's name is, seen from here; None where it is none."""
    try:
        folder = Path(name).expanduser()
        is_model = (folder / "config.json").is_file()
    except (OSError, RuntimeError, ValueError):
        return None
    return str(folder.resolve()) if is_model else None


def missing_folder(winner: Winner) -> str | None:
    """What is to be said where the exported files name a folder that is not to be found from here."""
    source = winner.weights_source
    if source is None or (source.count("/") <= 1 and not source.startswith((".", "~", "/"))):
        return None
    if Path(source).is_absolute() and Path(source).is_dir():
        return None
    return f"the model's folder {source} is not here: write its path where the files say {source}"


def _folder_of(study: Study, name: str) -> str | None:
    kept = study.note(FOLDER_NOTE)
    # Studies of older versions kept none: what is found from here is what was meant there.
    return model_folder(name) if kept is None else str(kept) or None


def _hub_id(name: str) -> str | None:
    from autotune.models import list_cards

    return next((card.hub_id for card in list_cards() if card.name == name), None)
