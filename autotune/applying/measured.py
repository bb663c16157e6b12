"""Reads `autotune.json`: the configuration that was measured, and on what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotune.errors import EnvironmentProblem, UsageError
from autotune.export.folder import RECORD
from autotune.export.record import FORMAT_VERSION
from trials.wire import Point

_HINT = "'autotune export' writes it: give that file, or its folder"


@dataclass(frozen=True)
class Measured:
    """What `autotune.apply` needs of a record.

    Attributes:
        path: the file.
        point: the configuration.
        config: the measured model's own configuration, with `model_type`.
        lora_targets: names of the adapted modules; None for all linear layers except the head.
        ds_config: the DeepSpeed configuration that ran.
        gpus: processes it ran with.
        device: where: cuda or cpu.
    """

    path: Path
    point: Point
    config: dict[str, Any]
    lora_targets: tuple[str, ...] | None
    ds_config: dict[str, Any]
    gpus: int
    device: str


def read_measured(where: str | Path) -> Measured:
    """Reads a record.

    Args:
        where: the file `autotune.json`, or the folder that `autotune run` and `autotune export` write.

    Raises:
        UsageError: there is none, or it is none of ours, or of a newer autotune.
        EnvironmentProblem: it cannot be read.
    """
    path = Path(where)
    if path.is_dir():
        path = path / RECORD
    record = _object(path)
    version = record.get("format_version")
    if not isinstance(version, int) or "point" not in record:
        raise UsageError(f"{path} is not what autotune writes", _HINT)
    if version > FORMAT_VERSION:
        raise UsageError(
            f"{path} was written by a newer autotune (format {version}, this one reads {FORMAT_VERSION})",
            "upgrade autotune here, or export again with this one",
        )
    trial, longer = record.get("trial") or {}, record.get("confirmation") or {}
    try:
        return Measured(
            path=path,
            point=Point.model_validate(record["point"]),
            config=record["model"]["config"],
            lora_targets=_names(record.get("lora_targets")),
            ds_config=dict(longer.get("ds_config") or trial["ds_config"]),
            gpus=int(record["gpus"]),
            device=str(record["device"]),
        )
    except (KeyError, TypeError, ValidationError) as error:
        raise UsageError(f"{path} is not whole: {_what(error)}", _HINT) from error


def _object(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no {path}", _HINT) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be read: {error.strerror}", "check its permissions"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}", _HINT) from error
    if not isinstance(record, dict):
        raise UsageError(f"{path} is not what autotune writes", _HINT)
    return record


def _names(value: Any) -> tuple[str, ...] | None:
    return tuple(str(name) for name in value) if value else None


def _what(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"point.{'.'.join(str(part) for part in first['loc'])}: {first['msg'].lower()}"
    return str(error)
