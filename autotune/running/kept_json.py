"""A JSON object in a file of the user's data folder, which several processes may add to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class KeptJson:
    """Values by key.

    Args:
        path: the file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """All values; none where there is no file yet, or one that cannot be read: it is begun anew."""
        try:
            values = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}

    def put(self, key: str, value: Any) -> None:
        """Keep a value; what other processes kept meanwhile under other keys stays."""
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({**self.read(), key: value}, indent=1))
        temporary.replace(self._path)
