"""Traces kept on disk: by model, point, sequence length, library versions and the tracing code itself."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune.prediction.events import Events

LIBRARIES = (
    "torch",
    "transformers",
    "deepspeed",
    "peft",
    "accelerate",
    "bitsandbytes",
    "liger-kernel",
)
# The oldest traces go when the folder holds more than this.
MAX_FOLDER_BYTES = 1 << 30


def default_cache_folder() -> Path:
    """The user's cache folder for traces."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "autotune" / "traces"


@functools.cache
def code_digest() -> str:
    """A digest of the code and the library versions that traces depend on."""
    digest = hashlib.sha256()
    trials = Path(__file__).parents[2] / "trials"
    for source in sorted(trials.rglob("*.py")):
        digest.update(source.relative_to(trials).as_posix().encode())
        digest.update(source.read_bytes())
    for library in LIBRARIES:
        try:
            digest.update(f"{library}=={version(library)}".encode())
        except PackageNotFoundError:
            digest.update(f"{library} missing".encode())
    return digest.hexdigest()


class TraceCache:
    """A folder of npz files named by what they are traces of; kept predictions lie beside them.

    Args:
        folder: made when the first trace is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where everything is kept."""
        return self._folder

    def path(self, request: dict[str, Any]) -> Path:
        """Where the trace of a request is, or is to be, kept; the folder exists afterwards."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**request, "code": code_digest()}, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.npz"

    def read(self, path: Path) -> Events | None:
        """A kept trace; None where there is none that can be read."""
        if not path.exists():
            return None
        try:
            events = Events.read(path)
        except (OSError, ValueError, KeyError):
            # Half a file from a full disk: trace it again.
            path.unlink(missing_ok=True)
            return None
        os.utime(path)
        return events

    def trim(self) -> None:
        """Remove the traces that were not used for longest, down to the folder's size limit."""
        files = []
        for path in [*self._folder.glob("*.npz"), *self._folder.glob("*.json")]:
            # Another process may trim the same folder.
            with suppress(FileNotFoundError):
                about = path.stat()
                files.append((about.st_mtime, about.st_size, path))
        files.sort()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= MAX_FOLDER_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= size
