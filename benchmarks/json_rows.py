"""Rows that are kept as they come: one JSON object a line, so that what is cut short is not lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """What a file holds; nothing where there is none."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def append_row(path: Path, rows: list[Row], row: Row) -> None:
    """Keep a row, in the file and in the list."""
    with path.open("a") as output:
        output.write(json.dumps(row) + "\n")
    rows.append(row)
