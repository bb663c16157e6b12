"""The versions of the form in which studies are kept, and the way from each to the next.

A study consists of three kinds of plain JSON values: its head (inputs, times, machine, notes), its trials and
its confirmations. Each says by which version it was written. In a storage a finished trial cannot be written
again, so what is older is brought up to date whenever it is read; a study's head is written again when the
study is tuned. Files of `autotune study export` hold the same values.

    1  the first
    2  the head has `machine` (GPU, driver, versions of the libraries); trials and confirmations say by which
       version they were written

A field that is added to a point, a result or the inputs, with a default that means what it meant before, is
no new version: older values are read as they are, and an older autotune refuses newer ones in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autotune.errors import EnvironmentProblem

SCHEMA_VERSION = 2
FIRST_VERSION = 1

Kind = Literal["head", "trial", "confirmation"]
Values = dict[str, Any]


def _unchanged(values: Values) -> Values:
    return values


@dataclass(frozen=True)
class Step:
    """From one version to the next: pure functions from values to values.

    Attributes:
        head: of a study's head.
        trial: of a trial.
        confirmation: of a confirmation.
    """

    head: Callable[[Values], Values] = _unchanged
    trial: Callable[[Values], Values] = _unchanged
    confirmation: Callable[[Values], Values] = _unchanged


def _without_machine(head: Values) -> Values:
    # Version 1 kept it only in each trial's result; whoever needs it looks there.
    return {**head, "machine": None}


STEPS: Mapping[int, Step] = {1: Step(head=_without_machine)}


def upgraded(
    kind: Kind,
    values: Mapping[str, Any],
    version: object,
    where: str,
    *,
    steps: Mapping[int, Step] = STEPS,
    newest: int = SCHEMA_VERSION,
) -> Values:
    """Values of some version in the form of the newest one.

    Args:
        kind: what they are.
        values: as they were written.
        version: by which version.
        where: what they are in the user's words, for messages.
        steps: the step from each version to the next.
        newest: the version wanted.

    Raises:
        EnvironmentProblem: a newer autotune wrote them, or the version is none.
    """
    if isinstance(version, bool) or not isinstance(version, int) or version < FIRST_VERSION:
        raise EnvironmentProblem(f"{where} is damaged: its version is {version!r}", "take it from a backup")
    if version > newest:
        raise EnvironmentProblem(
            f"{where} was written by a newer version of autotune (form {version}, known: up to {newest})",
            "upgrade autotune",
        )
    current = dict(values)
    for step in range(version, newest):
        current = getattr(steps[step], kind)(current)
    return current
