"""The export folder: all of it, or what was there before."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import EnvironmentProblem
from autotune.export.ds_config import auto_ds_config
from autotune.export.exporter import Exporter
from autotune.export.lora import lora_settings
from autotune.export.quantization import quantization_settings
from autotune.export.readme import readme
from autotune.export.record import winner_record
from autotune.export.registry import EVERY, EXPORTERS
from autotune.export.script import train_script
from autotune.export.winner import Winner

RECORD = "autotune.json"
# Written for some winners only: removed when the next one has no use for them.
OPTIONAL = ("peft_config.json", "quantization_config.json")
NAMES = (RECORD, "ds_config.json", "ds_config.auto.json", *OPTIONAL, "train.py", "README.md")
# The trainers' own files, which are written where they are asked for.
TRAINER_NAMES = tuple(
    dict.fromkeys(name for one in EXPORTERS.values() for name in one.names if name not in NAMES)
)
# What a trainer's file of another winner is renamed to: the user may have filled it in.
OLD = ".old"


def folder_files(winner: Winner, exporters: Sequence[Exporter] = ()) -> dict[str, str]:
    """The text of each file of the export folder, by name.

    Args:
        winner: what to write.
        exporters: the trainers whose files to write beside the folder's own.
    """
    data: dict[str, Mapping[str, Any] | None] = {
        RECORD: winner_record(winner),
        "ds_config.json": winner.ds_config,
        "ds_config.auto.json": auto_ds_config(winner.ds_config),
        "peft_config.json": lora_settings(winner),
        "quantization_config.json": quantization_settings(winner),
    }
    texts = {name: json.dumps(value, indent=2) + "\n" for name, value in data.items() if value is not None}
    own = {**texts, "train.py": train_script(winner), "README.md": readme(winner, exporters)}
    return own | {name: text for exporter in exporters for name, text in exporter.files(winner).items()}


def export_folder(winner: Winner, folder: Path, exporters: Sequence[Exporter] = ()) -> Path:
    """Write the winner into a folder: configuration files, a training script and how to start it.

    The files are written beside their place and moved into it when all of them are on the disk. An earlier
    export is replaced; whatever else is in the folder stays as it is. A trainer's file that an earlier export
    wrote for another point, and that this one does not write, gets `.old` after its name.

    Args:
        winner: what to write.
        folder: made if it does not exist, with its parents.
        exporters: the trainers whose files to write beside the folder's own.

    Returns:
        The folder.

    Raises:
        EnvironmentProblem: the folder cannot be written, or holds a file of that name that is not ours.
    """
    check_export_folder(folder, [exporter.name for exporter in exporters])
    files = folder_files(winner, exporters)
    stale = _stale(winner, folder, files)
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    temporary = (folder if folder.exists() else folder.parent) / f".autotune-{uuid.uuid4().hex}"
    try:
        try:
            temporary.mkdir(parents=True)
            for name, text in files.items():
                (temporary / name).write_text(text, encoding="utf-8")
            _move(temporary, folder, files, stale)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        for parent in new_parents:
            _remove_if_empty(parent)
        raise EnvironmentProblem(
            f"cannot write the export to {folder}: {error.strerror or error}",
            "free some space or choose another folder with --export-dir",
        ) from error
    return folder


def check_export_folder(folder: Path, formats: Iterable[str] = ()) -> None:
    """Whether an export could go there; to be asked before hours of measuring.

    Args:
        folder: where to.
        formats: the trainers whose files would be written; `all` is every one.

    Raises:
        EnvironmentProblem: it is not a folder, or an export would overwrite files there that none wrote.
    """
    if folder.exists() and not folder.is_dir():
        raise EnvironmentProblem(f"{folder} is not a folder", "choose another one with --export-dir")
    asked = set(EXPORTERS) if EVERY in (names := set(formats)) else names
    trainers_own = {name for one in asked for name in EXPORTERS[one].names}
    ours = (*NAMES, *(name for name in TRAINER_NAMES if name in trainers_own))
    taken = [name for name in ours if (folder / name).exists() or (folder / name).is_symlink()]
    folders = [name for name in taken if (folder / name).is_dir()]
    if folders or (taken and not _is_ours(folder / RECORD)):
        raise EnvironmentProblem(
            f"{folder} has a {(folders or taken)[0]} that is not from an export",
            "choose another folder with --export-dir",
        )


def _is_ours(record: Path) -> bool:
    return _point_of(record) is not None


def _point_of(record: Path) -> Any | None:
    """The point of an earlier export; None where there is none."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content.get("point") if isinstance(content, dict) and "format_version" in content else None


def _stale(winner: Winner, folder: Path, files: Mapping[str, str]) -> list[str]:
    """The trainers' files of an earlier export of another point, which this one does not replace."""
    earlier = _point_of(folder / RECORD)
    if earlier is None or earlier == winner.point.model_dump(mode="json"):
        return []
    return [name for name in TRAINER_NAMES if name not in files and (folder / name).is_file()]


def _move(temporary: Path, folder: Path, files: Mapping[str, str], stale: Iterable[str]) -> None:
    if temporary.parent != folder:
        temporary.rename(folder)
        return
    for name in stale:
        (folder / name).replace(folder / f"{name}{OLD}")
    # The record goes first: by it the next export knows the others, should this one be killed half way.
    for name in files:
        (temporary / name).replace(folder / name)
    for name in OPTIONAL:
        if name not in files:
            (folder / name).unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
