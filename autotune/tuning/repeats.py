"""Trials that keep failing alike: the machine or the request is at fault, not the configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import EnvironmentProblem
from trials.wire import Outcome, TrialResult

REPEATS = 3
_NOT_MEMORY = frozenset({Outcome.CRASH, Outcome.INVALID, Outcome.TIMEOUT, Outcome.NAN})


def repeated_failure(results: Sequence[TrialResult]) -> TrialResult | None:
    """The last result, where the last three are one and the same failure that is not about memory.

    Numbers and addresses in the messages are not compared.
    """
    last = results[-REPEATS:]
    if len(last) < REPEATS or last[-1].outcome not in _NOT_MEMORY:
        return None
    alike = {(result.outcome, result.phase, _shape(result.message)) for result in last}
    return last[-1] if len(alike) == 1 else None


def repeated_problem(result: TrialResult, log: Path) -> EnvironmentProblem:
    """The error that ends a study whose trials all fail alike.

    Args:
        result: the last failure.
        log: its log file.
    """
    if result.outcome is Outcome.TIMEOUT:
        return EnvironmentProblem(
            f"{REPEATS} trials in a row ran out of their time",
            f"give --trial-timeout more; the last log is {log}",
        )
    message = result.message.strip().splitlines()[0] if result.message.strip() else result.outcome.value
    return EnvironmentProblem(f"{REPEATS} trials in a row failed alike: {message}", f"the last log is {log}")


def _shape(message: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", message.lower())
