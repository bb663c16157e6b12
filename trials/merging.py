"""One result of a trial's several processes."""

from __future__ import annotations

from typing import Any

from trials.afterlife import PEER_FAILED
from trials.wire import Outcome, TrialResult

# Which of several processes' outcomes tells what happened.
EXPLAINS = (
    Outcome.INVALID,
    Outcome.OOM,
    Outcome.HOST_OOM,
    Outcome.NAN,
    Outcome.TIMEOUT,
    Outcome.CRASH,
    Outcome.STOPPED,
    Outcome.OK,
)


def merge(results: list[TrialResult]) -> TrialResult:
    """One result of all processes: the failure that explains most, and the largest memory of any."""
    # A process whose peer died reports a broken connection, or nothing: the peer's own reason counts.
    chosen = min(results, key=lambda result: (EXPLAINS.index(result.outcome), result.message == PEER_FAILED))
    largest: dict[str, Any] = {}
    for field in (
        "peak_allocated_bytes",
        "setup_peak_allocated_bytes",
        "peak_reserved_bytes",
        "device_bytes",
        "required_device_bytes",
    ):
        values = [getattr(result, field) for result in results if getattr(result, field) is not None]
        largest[field] = max(values, default=None)
    largest["required_verified"] = all(result.required_verified for result in results)
    largest["disturbed"] = next((result.disturbed for result in results if result.disturbed), None)
    hosts = [result.host_peak_bytes for result in results if result.host_peak_bytes is not None]
    largest["host_peak_bytes"] = sum(hosts) if hosts else None
    return chosen.model_copy(update=largest)
