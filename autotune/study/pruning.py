"""Which studies are old enough to go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from autotune.study.summaries import StudySummary


def prunable(
    summaries: Sequence[StudySummary],
    now: datetime,
    *,
    older_than: timedelta | None,
    keep: int | None,
    running: Collection[str] = (),
) -> tuple[StudySummary, ...]:
    """The studies that pruning deletes, the one last tuned first.

    Args:
        summaries: all studies.
        now: aware.
        older_than: only what was last tuned longer ago; None: however long ago.
        keep: the last tuned so many stay in any case; None: none does.
        running: names of those that a process tunes, which stay and are not counted among the kept.
    """
    idle = [summary for summary in summaries if summary.name not in running]
    newest_first = sorted(idle, key=lambda summary: summary.opened_at, reverse=True)
    return tuple(
        summary
        for summary in newest_first[keep or 0 :]
        if older_than is None or now - summary.opened_at > older_than
    )
