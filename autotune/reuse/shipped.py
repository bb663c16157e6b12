"""The measured studies that come with the package, so that a first search has something to learn from.

They are files of `autotune study export`, shortened by `python -m benchmarks.reuse.ship`: the point of each
trial and what it measured; of the machine, only the GPU, the driver, processors and libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files

from autotune.study.record import Record
from autotune.study.stored import StoredHead

FOLDER = "shipped_studies"
PREFIX = "shipped-"


class ShippedStudies:
    """The shipped studies, as `StorageReader` shows those of a storage."""

    @property
    def heads(self) -> Mapping[str, StoredHead]:
        """By name."""
        return {name: head for name, (head, _) in _studies().items()}

    def records(self, name: str) -> tuple[Record, ...]:
        """A study's trials, by number."""
        return _studies()[name][1]


@functools.cache
def _studies() -> dict[str, tuple[StoredHead, tuple[Record, ...]]]:
    from autotune.study.study_file import read_lines

    found = {}
    for file in sorted((files("autotune.reuse") / FOLDER).iterdir(), key=lambda one: one.name):
        if file.name.endswith(".jsonl"):
            document = read_lines(file.read_text(encoding="utf-8").splitlines(), file.name)
            records = tuple(
                replace(trial.record(), position=position)
                for position, trial in enumerate(document.trials, start=1)
            )
            found[document.name] = document.head, records
    return found
