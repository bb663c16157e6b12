"""Reads a configuration file: what is for every command, what is for one, and the line of each key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import EnvironmentProblem, UsageError

DEFAULT_NAME = "autotune.toml"
LARGEST_BYTES = 2**20
_HEADER = re.compile(r"\s*\[\s*([\w-]+)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*(?:["']?([\w-]+)["']?\s*\.\s*)?["']?([\w-]+)["']?\s*=""")


@dataclass(frozen=True)
class SettingsFile:
    """A configuration file that is TOML; whether its keys are flags is not known here.

    Attributes:
        path: where it was read.
        shared: what stands above the first table, for every command that has such a flag; by flag name with
            dashes.
        tables: what is for one command, by its name.
        lines: the line of each key, 1 for the first, by table (empty: shared) and name.
    """

    path: Path
    shared: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    lines: Mapping[tuple[str, str], int]

    def where(self, table: str, key: str = "") -> str:
        """`autotune.toml, line 3`; without the line where the file writes the key in a way of its own."""
        line = self.lines.get((table, key))
        return f"{self.path}, line {line}" if line else str(self.path)


def read_settings(path: Path) -> SettingsFile:
    """Reads a configuration file.

    Raises:
        UsageError: it is not TOML, or names one flag in two ways.
        EnvironmentProblem: it cannot be read.
    """
    text = _text_of(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{path} is not TOML: {error}", "'autotune init' writes one to begin with"
        ) from error
    lines = _lines(text)
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    return SettingsFile(
        path,
        _dashed(path, shared),
        {name: _dashed(path, values) for name, values in tables.items()},
        lines,
    )


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UsageError(f"{path} is too large for a configuration file", "give another --config")
        # Editors of Windows begin a file with a mark that TOML does not know.
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise EnvironmentProblem(
            f"the configuration file {path} cannot be read: {error.strerror}", "give another --config"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8", "give another --config") from error


def _dashed(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under their flags' names: `gpu_budget` is as good as `gpu-budget`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("_", "-")
        if name in found:
            raise UsageError(f"{path} sets {name} twice, as {name} and as {key}", "leave one of them out")
        found[name] = value
    return found


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Where each key and each table stands, as far as one line can tell; TOML's parser does not say."""
    lines: dict[tuple[str, str], int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = header[1]
            lines.setdefault((table, ""), number)
        elif key := _KEY.match(line):
            lines.setdefault((key[1] or table, key[2].replace("_", "-")), number)
    return lines
