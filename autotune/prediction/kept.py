"""Predictions kept on disk: one file for a model and a GPU, so that what was planned once is only read."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from threading import get_ident
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autotune.prediction.prediction import Prediction
from trials.wire import Point

_FILE = TypeAdapter(dict[str, Prediction])


@functools.cache
def prediction_digest() -> str:
    """A digest of the code that makes predictions of traces."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


class KeptPredictions:
    """The predictions of one model's points on one GPU.

    Args:
        folder: where files are kept.
        about: everything they depend on beside the point and this project's code of prediction.
    """

    def __init__(self, folder: Path, about: Any) -> None:
        text = json.dumps([about, prediction_digest()], sort_keys=True)
        self._path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.json"
        self._made = self._read()
        self._count = len(self._made)

    def get(self, point: Point, *, exact: bool) -> Prediction | None:
        """What was predicted of a point; None where nothing was."""
        return self._made.get(_key(point, exact))

    def put(self, point: Point, prediction: Prediction, *, exact: bool) -> None:
        """Remember a prediction until `save`."""
        self._made[_key(point, exact)] = prediction

    def save(self) -> None:
        """Write what is new, beside what others wrote of the same model meanwhile."""
        if len(self._made) == self._count:
            return
        self._made = {**self._read(), **self._made}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(f".{os.getpid()}.{get_ident()}.tmp")
        temporary.write_bytes(_FILE.dump_json(self._made))
        temporary.replace(self._path)
        self._count = len(self._made)

    def _read(self) -> dict[str, Prediction]:
        try:
            found = _FILE.validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            # None yet, or half a file from a full disk.
            return {}
        os.utime(self._path)
        return found


def _key(point: Point, exact: bool) -> str:
    return f"{'exact' if exact else 'shared'} {point.model_dump_json(exclude_defaults=True)}"
