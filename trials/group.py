"""The processes of one job, watched together: their events, their time, their memory and each other's end."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trials.afterlife import Death
from trials.children import PRIVATE_EVENTS, Child, Job
from trials.requests import Requests
from trials.wire import Phase

POLL_SECONDS = 0.02
# Outcomes after which a process leaves its peers no reason to end; None is another job's.
_GOOD = ("ok", "stopped", None)

Send = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """When a job is ended from outside.

    Attributes:
        deadline: monotonic time; None: it may take as long as it likes.
        host_budget_bytes: resident memory of all its processes together.
        data_limit_bytes: private writable memory of each beyond its imports; where it is limited by the
            system, a process that sits still at the limit is ended.
    """

    deadline: float | None = None
    host_budget_bytes: int | None = None
    data_limit_bytes: int | None = None


class Group:
    """Forked processes that do one job.

    Args:
        job: what each runs.
        count: how many.
        log_path: file for what they print.
        selector: their events are waited for with it.
        requests: the controller's, heard meanwhile.
        send: where the first process' events go.
    """

    def __init__(
        self,
        job: Job,
        count: int,
        log_path: str,
        *,
        selector: selectors.BaseSelector,
        requests: Requests,
        send: Send,
    ) -> None:
        self._selector = selector
        self._requests = requests
        self._send = send
        self.children = [Child(job, rank, log_path) for rank in range(count)]
        for child in self.children:
            selector.register(child.read_fd, selectors.EVENT_READ, child)

    @property
    def is_ready(self) -> bool:
        """Whether every process is alive and waits for another request."""
        return all(child.ready and child.exit_status is None for child in self.children)

    def ask(self, request: dict[str, Any], phase: Phase) -> None:
        """Give all processes their next request."""
        for child in self.children:
            child.begin(phase)
            child.send(request)

    def wait(self, limits: Limits) -> None:
        """Until every process has answered, or has ended; then all of them have, unless all are ready."""
        while running := {child for child in self.children if not self._is_over(child)}:
            self._hear()
            running = {child for child in running if not self._is_over(child)}
            if not running:
                break
            reason = self._reason_to_end(running, limits)
            for child in running:
                if reason and child.ended is None:
                    child.end(reason)
        if not self.is_ready:
            self.end()

    def hear_idle(self, key: selectors.SelectorKey) -> None:
        """Take what a process said that was asked nothing: only that it has died is of interest."""
        self._take(key.data)

    def end(self) -> None:
        """End every process, with whatever it started in the background, and wait until it has gone."""
        for child in self.children:
            child.kill()
        for child in self.children:
            child.reap()
            self._forget(child)

    def _is_over(self, child: Child) -> bool:
        return child.ready or child.exit_status is not None

    def _hear(self) -> None:
        for key, _ in self._selector.select(POLL_SECONDS):
            if key.data is self._requests:
                self._requests.take()
            else:
                self._take(key.data)

    def _take(self, child: Child) -> None:
        events = child.drain()
        if events is None:
            self._forget(child)
            child.reap()
            return
        for event in events:
            child.take(event)
            if event["event"] not in PRIVATE_EVENTS and child.rank == 0:
                self._send(event)

    def _forget(self, child: Child) -> None:
        if child.read_fd in self._selector.get_map():
            self._selector.unregister(child.read_fd)
            os.close(child.read_fd)

    def _reason_to_end(self, running: set[Child], limits: Limits) -> str | None:
        if self._requests.is_end_wanted():
            return "killed"
        if limits.deadline is not None and time.monotonic() > limits.deadline:
            return "timeout"
        for child in running:
            child.look()
        resident = sum(child.last_resident_bytes for child in running)
        if limits.host_budget_bytes is not None and resident > limits.host_budget_bytes:
            return "host_oom"
        # One process that failed leaves the others waiting in a collective for ever.
        over = [child for child in self.children if child not in running]
        if any(child.final is None or child.final.get("outcome") not in _GOOD for child in over):
            return "peer"
        size = limits.data_limit_bytes
        if size is not None and any(child.stalled_at(size) for child in running):
            return "stalled"
        return None


def death_of(child: Child, seconds: float) -> Death:
    """How a process ended that has been reaped."""
    assert child.exit_status is not None
    # One that had died of itself when it was to be ended says more by that.
    killed = os.WIFSIGNALED(child.exit_status) and os.WTERMSIG(child.exit_status) == signal.SIGKILL
    return Death(
        exit_status=child.exit_status,
        ended=child.ended if killed else None,
        phase=child.phase,
        data_bytes=max(0, child.last_data_bytes - child.baseline_bytes),
        resident_bytes=child.last_resident_bytes,
        seconds=seconds,
    )
