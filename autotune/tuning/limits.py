"""Which budgets stand in the way where nothing fits: the device's, the host's, or both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from autotune.sizes import format_size
from trials.wire import Outcome, TrialResult

if TYPE_CHECKING:
    from autotune.tuning.session import Session
    from trials.wire import Point

Limit = Literal["device", "host"]
LIMITS: tuple[Limit, ...] = ("device", "host")


def broken_limits(results: Iterable[TrialResult], budget_bytes: int) -> tuple[Limit, ...]:
    """The budgets that these results broke, the device's first; none where no failure was about memory.

    Args:
        results: of trials and longer runs.
        budget_bytes: device memory of one process.
    """
    broken: set[Limit] = set()
    for result in results:
        required = result.required_device_bytes
        if result.outcome is Outcome.OOM or (required is not None and required > budget_bytes):
            broken.add("device")
        if result.outcome is Outcome.HOST_OOM:
            broken.add("host")
    return tuple(limit for limit in LIMITS if limit in broken)


def limits_in_the_way(session: Session, points: Iterable[Point]) -> tuple[Limit, ...]:
    """The budgets that keep these points from fitting, as measured and as predicted.

    Args:
        session: the work.
        points: of one method, or of all.
    """
    own = frozenset(points)
    records = [*session.measured(), *session.study.confirmations()]
    results = [record.result for record in records if record.result is not None and record.point in own]
    broken = set(broken_limits(results, session.task.budget.size_bytes))
    if session.foresight is not None:
        verdicts = {session.foresight.verdict(point) for point in own}
        broken |= {limit for limit in LIMITS if limit in verdicts}
    return tuple(limit for limit in LIMITS if limit in broken)


def limits_words(limits: Iterable[str], budget_bytes: int, host_budget_bytes: int | None) -> str:
    """`24.0 GiB`, `the host budget of 1 MiB`, or both.

    Args:
        limits: device, host; none is taken for the device's.
        budget_bytes: device memory of one process.
        host_budget_bytes: host memory of a trial; None where nobody knows any more.
    """
    device = format_size(budget_bytes)
    host = "the host budget"
    if host_budget_bytes is not None:
        host += f" of {format_size(host_budget_bytes)}"
    found = set(limits)
    if "host" not in found:
        return device
    return f"{device} and {host}" if "device" in found else host
