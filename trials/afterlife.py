"""What it means that a trial died without a word: by a signal, killed for time, or for memory."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from trials.failures import classify
from trials.wire import Outcome, Phase, TrialResult, TrialSpec

# An allocation that does not fit ends these ways when nobody could raise an exception any more.
_MEMORY_SIGNALS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
NEAR_LIMIT = 0.7
LOG_TAIL_BYTES = 8192
PEER_FAILED = "another process of the trial failed"


@dataclass(frozen=True)
class Death:
    """How a process ended, and what was last seen of it.

    Attributes:
        exit_status: as `os.waitpid` gives it.
        ended: why it was ended from outside: "timeout", "host_oom", "stalled", "killed", "peer", or None.
        phase: the last phase it told.
        data_bytes: private writable memory beyond its imports, last seen.
        resident_bytes: resident memory, last seen.
        seconds: from fork to the end.
    """

    exit_status: int
    ended: str | None
    phase: Phase
    data_bytes: int
    resident_bytes: int
    seconds: float


def result_of_death(spec: TrialSpec, death: Death) -> TrialResult:
    """The result of a trial that could not report itself."""
    outcome, message = _outcome(spec, death)
    return TrialResult(
        trial_id=spec.trial_id,
        outcome=outcome,
        phase=death.phase,
        message=message,
        trial_seconds=death.seconds,
        device_bytes=death.data_bytes if spec.device == "cpu" else None,
        host_peak_bytes=death.resident_bytes or None,
    )


def _outcome(spec: TrialSpec, death: Death) -> tuple[Outcome, str]:
    if death.ended == "timeout":
        return Outcome.TIMEOUT, f"still in phase {death.phase} after {death.seconds:.0f} s"
    if death.ended == "host_oom":
        assert spec.host_budget_bytes is not None
        return (
            Outcome.HOST_OOM,
            f"held {_gib(death.resident_bytes)} of host memory, {_gib(spec.host_budget_bytes)} are allowed",
        )
    if death.ended == "stalled":
        return Outcome.OOM, "stuck at the memory limit: no room to start a thread"
    if death.ended == "killed":
        return Outcome.CRASH, "ended from outside"
    if death.ended == "peer":
        return Outcome.CRASH, PEER_FAILED
    limited = spec.device == "cpu" and spec.budget_bytes is not None
    if not os.WIFSIGNALED(death.exit_status):
        status = os.waitstatus_to_exitcode(death.exit_status)
        if limited and "libgomp: Thread creation failed" in _log_tail(spec.log_path):
            # OpenMP has no exceptions: it ends the process.
            return Outcome.OOM, f"exited with status {status} at the memory limit: no room for a thread"
        return Outcome.CRASH, f"exited with status {status} and no result"
    number = signal.Signals(os.WTERMSIG(death.exit_status))
    if number in _MEMORY_SIGNALS and limited:
        assert spec.budget_bytes is not None
        tail = _log_tail(spec.log_path)
        told = classify(RuntimeError(tail), on_cpu=True, limited=True).outcome is Outcome.OOM
        if told or death.data_bytes >= NEAR_LIMIT * spec.budget_bytes:
            return Outcome.OOM, f"{number.name} at the memory limit"
    if number is signal.SIGKILL and death.resident_bytes > _host_bytes() // 2:
        return (
            Outcome.HOST_OOM,
            f"killed by the system while it held {_gib(death.resident_bytes)} of host memory",
        )
    return Outcome.CRASH, f"died of {number.name}; its output is in {spec.log_path}"


def _log_tail(path: str) -> str:
    try:
        return Path(path).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""


def _host_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
