"""The points that may still be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trials.wire import Outcome, Point

if TYPE_CHECKING:
    from autotune.study import Record

MEMORY_FAILURES = frozenset({Outcome.OOM, Outcome.HOST_OOM})


class Candidates:
    """A space's points less those that were measured and those that need at least as much as one that failed.

    A failure is compared once with each remaining point, not again for every proposal.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self._remaining = dict.fromkeys(points)
        self._seen: set[int] = set()

    def update(self, records: Sequence[Record]) -> None:
        """Take out what the records that are new since the last call exclude."""
        from autotune.study import is_dominated

        new = [record for record in records if record.number not in self._seen]
        self._seen.update(record.number for record in new if record.result is not None)
        for record in new:
            self._remaining.pop(record.point, None)
        failures = [r for r in new if r.result is not None and r.result.outcome in MEMORY_FAILURES]
        if failures:
            self._remaining = {point: None for point in self._remaining if not is_dominated(point, failures)}

    def remaining(self) -> list[Point]:
        """The points that are left, in the space's order."""
        return list(self._remaining)

    def __len__(self) -> int:
        return len(self._remaining)
