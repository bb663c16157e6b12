"""A study that something can be learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.reuse.profile import Profile
from autotune.study.record import Record


@dataclass(frozen=True)
class Similar:
    """Another study, how far it is trusted, and what it measured.

    Attributes:
        study: its name.
        trust: in [0, 1].
        why: in words.
        profile: what it was about.
        records: its trials that are over.
    """

    study: str
    trust: float
    why: str
    profile: Profile
    records: tuple[Record, ...]

    def as_json(self) -> dict[str, Any]:
        """What `autotune run --json` says of it."""
        return {"study": self.study, "trust": round(self.trust, 3), "why": self.why}
