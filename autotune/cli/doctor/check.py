"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """What was looked at, and how it is.

    Attributes:
        name: what was looked at.
        verdict: ok; warn: works, but less or untested; fail: `autotune run` cannot work.
        found: what was found, in a few words.
        hint: what to do about it; empty where all is well.
    """

    name: str
    verdict: Verdict
    found: str
    hint: str = ""
