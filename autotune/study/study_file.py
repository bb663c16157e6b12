"""A study as a text file: one JSON object a line, checked line by line when it is read back.

The first line is the header, with these keys:

    format            "autotune-study"
    format_version    the version of the form (autotune/study/migrations.py), for every line
    study             its name
    inputs, created_at, opened_at, autotune_version, notes
    machine           gpu_name, driver, host_cpus, versions, rates
    trials, confirmations     how many lines of each follow

Then a line for each trial that is over, by number (`kind` "trial": number, point, predicted, result,
started_at, finished_at), and one for each confirmation, oldest first (`kind` "confirmation": number, point,
result, finished_at). A point's and a result's fields are those of trials/wire.py; sizes in bytes, times in
seconds, moments in ISO 8601 with their offset; numbers that JSON lacks are the strings "NaN", "Infinity" and
"-Infinity".

Each line ends with `digest`: the first 16 hexadecimal digits of the SHA-256 of the line before's digest (of
nothing for the header) followed by the line's other keys as compact JSON with sorted keys. So a line that was
changed is known by its number, and a line that is missing by the one after it. It keeps mistakes out, not
forgers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from autotune.errors import AutotuneError, UsageError
from autotune.study.document import Document
from autotune.study.migrations import SCHEMA_VERSION, Kind, upgraded
from autotune.study.stored import StoredConfirmation, StoredHead, StoredTrial, checked

FORMAT = "autotune-study"
DIGEST_DIGITS = 16
# Numbers of trials that were abandoned are left out; more than so many are a mistake.
MOST_MISSING = 10_000
_ABOUT_FILE = ("format", "format_version", "study", "trials", "confirmations")


def write_lines(document: Document) -> Iterator[str]:
    """The lines of a study's file, each with its line end."""
    header = {
        "format": FORMAT,
        "format_version": SCHEMA_VERSION,
        "study": document.name,
        **document.head.model_dump(mode="json"),
        "trials": len(document.trials),
        "confirmations": len(document.confirmations),
    }
    trials = ({"kind": "trial", **trial.model_dump(mode="json")} for trial in document.trials)
    rest = ({"kind": "confirmation", **one.model_dump(mode="json")} for one in document.confirmations)
    digest = ""
    for values in (header, *trials, *rest):
        plain = _plain(values)
        digest = _digest(digest, plain)
        yield json.dumps({**plain, "digest": digest}, ensure_ascii=False, allow_nan=False) + "\n"


def read_lines(lines: Iterable[str], file: str) -> Document:
    """The study of a file, checked.

    Args:
        lines: the file's.
        file: what the user calls it, for messages.

    Raises:
        UsageError: it is no file of ours, or it was cut off or changed; the message says in which line.
        EnvironmentProblem: a newer autotune wrote it.
    """
    reader = _Reader(file)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            reader.take(number, line)
    return reader.document()


class _Reader:
    """Takes one line after the other."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._line = 0
        self._digest = ""
        self._about: dict[str, Any] = {}
        self._head: StoredHead | None = None
        self._trials: list[StoredTrial] = []
        self._confirmations: list[StoredConfirmation] = []

    def take(self, number: int, line: str) -> None:
        """One line that is not blank."""
        self._line = number
        values = self._object(line)
        if self._head is None:
            self._check_header(values)
        self._check_digest(values)
        try:
            self._keep(values)
        except AutotuneError as error:
            raise type(error)(self._at(error.message), error.hint) from None

    def document(self) -> Document:
        """The whole study."""
        if self._head is None:
            raise UsageError(f"{self._file} is empty", "give a file that 'autotune study export' wrote")
        for kind, found in (("trials", self._trials), ("confirmations", self._confirmations)):
            if len(found) != self._about[kind]:
                raise UsageError(
                    f"{self._file} was cut off after line {self._line}: "
                    f"it has {len(found)} of {self._about[kind]} {kind}",
                    "copy or export it again",
                )
        return Document(self._about["study"], self._head, tuple(self._trials), tuple(self._confirmations))

    def _object(self, line: str) -> dict[str, Any]:
        try:
            values = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            if self._head is None:
                raise self._foreign() from None
            why = "is no JSON" if line.endswith("\n") else "is cut off"
            raise UsageError(self._at(f"the line {why}"), "copy or export it again") from None
        if not isinstance(values, dict):
            raise self._foreign() if self._head is None else self._changed()
        return values

    def _check_header(self, values: dict[str, Any]) -> None:
        if values.get("format") != FORMAT:
            raise self._foreign()
        version = values.get("format_version")
        upgraded("head", {}, version, self._at("the file"))
        for key, kind in (("study", str), ("trials", int), ("confirmations", int)):
            if not isinstance(values.get(key), kind):
                raise self._changed()
        self._about = {key: values[key] for key in _ABOUT_FILE}

    def _check_digest(self, values: dict[str, Any]) -> None:
        said = values.pop("digest", None)
        self._digest = _digest(self._digest, values)
        if said != self._digest:
            raise self._changed()

    def _keep(self, values: dict[str, Any]) -> None:
        if self._head is None:
            head = {key: value for key, value in values.items() if key not in _ABOUT_FILE}
            self._head = checked(StoredHead, self._upgraded("head", head), "the header")
            return
        kind = values.pop("kind", None)
        if kind == "trial" and not self._confirmations:
            self._keep_trial(checked(StoredTrial, self._upgraded("trial", values), "the trial"))
        elif kind == "confirmation":
            one = checked(StoredConfirmation, self._upgraded("confirmation", values), "the confirmation")
            self._confirmations.append(one)
        else:
            raise UsageError(f"no line of kind {kind!r} is expected here", "export it again")

    def _keep_trial(self, trial: StoredTrial) -> None:
        if trial.result is None or trial.finished_at is None:
            raise UsageError(f"trial {trial.number} has no result", "export it again")
        last = self._trials[-1].number if self._trials else -1
        if not last < trial.number <= len(self._trials) + MOST_MISSING:
            raise UsageError(f"trial {trial.number} cannot follow trial {last}", "export it again")
        self._trials.append(trial)

    def _upgraded(self, kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
        return upgraded(kind, values, self._about["format_version"], "the file")

    def _at(self, words: str) -> str:
        return f"{self._file}, line {self._line}: {words}"

    def _changed(self) -> UsageError:
        return UsageError(
            self._at("it was changed after the export, or a line before it is missing"),
            "nothing was imported: export the study again, and do not edit the file",
        )

    def _foreign(self) -> UsageError:
        return UsageError(
            f"{self._file} is no exported study (line {self._line} is not its header)",
            "give a file that 'autotune study export' wrote",
        )


def _digest(before: str, values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((before + text).encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]


def _plain(value: Any) -> Any:
    """The value as JSON knows it: lists, and the numbers it lacks by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)
