"""One trial of a study, as everything outside the storage sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trials.wire import Point, TrialResult


@dataclass(frozen=True)
class Record:
    """A trial that is over, or that some live process is running.

    Attributes:
        number: unique within the study, in order of their beginning; not without gaps.
        point: what was tried.
        result: what it reported; None while it runs.
        predicted: what was predicted before it was launched, in JSON values.
        started_at: aware, UTC.
        finished_at: aware, UTC; None while it runs.
        position: the number that users see, 1 for the first: without gaps, since trials that were interrupted
            are not counted.
    """

    number: int
    point: Point
    result: TrialResult | None
    predicted: dict[str, Any] | None
    started_at: datetime
    finished_at: datetime | None
    position: int = 0

    def __post_init__(self) -> None:
        """Without anything known of interrupted trials, no trial was interrupted."""
        if not self.position:
            object.__setattr__(self, "position", self.number + 1)
