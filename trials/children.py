"""Forked processes of a job, as the process that forks sees them and as they see themselves.

A job's process is a process group of its own and dies with it, as it dies with its parent. What it tells
comes as JSON lines through a pipe; another pipe brings it further work, for a job that can take more.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from trials.device_memory import cpu_seconds, data_bytes, resident_bytes
from trials.wire import Phase

# A CPU trial that computes nothing for so long, with less room than this under its limit, waits for a
# thread that could not be started (Gloo's destructor does): it ran out of memory, and will never say so.
STALL_SECONDS = 5.0
STALL_ROOM_BYTES = 32 << 20
_PR_SET_PDEATHSIG = 1
# Between a process and its parent: that it has heard a request, and its answer.
PRIVATE_EVENTS = ("taken", "done")

Job = Callable[["Channel"], None]


def die_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends; end now if it is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


class Channel:
    """A forked process' way to its parent.

    Args:
        rank: which of the job's processes it is.
        write_fd: where events go.
        read_fd: where further requests come from.
    """

    def __init__(self, rank: int, write_fd: int, read_fd: int) -> None:
        self.rank = rank
        self._write_fd = write_fd
        self._requests = os.fdopen(read_fd, "rb")

    def report(self, event: dict[str, Any]) -> None:
        """Send one event."""
        data = (json.dumps(event) + "\n").encode()
        while data:
            data = data[os.write(self._write_fd, data) :]

    def done(self, body: dict[str, Any], *, ready: bool = False) -> None:
        """The request's answer; `ready` where this process stays for another."""
        self.report({"event": "done", "body": body, "ready": ready})

    def receive(self) -> dict[str, Any] | None:
        """The next request, waited for; None where there will be none."""
        line = self._requests.readline()
        if not line:
            return None
        self.report({"event": "taken"})
        return dict(json.loads(line))

    def log_to(self, path: str) -> None:
        """Append what this process prints to another file from here on."""
        sys.stdout.flush()
        sys.stderr.flush()
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)


class Child:
    """One forked process of a job, and the pipes to and from it."""

    def __init__(self, job: Job, rank: int, log_path: str) -> None:
        self.rank = rank
        self.exit_status: int | None = None
        self.last_data_bytes = 0
        self.last_resident_bytes = 0
        self._cpu_seconds = 0.0
        self._buffer = b""
        self.read_fd, write_fd = os.pipe()
        request_fd, self._request_fd = os.pipe()
        sys.stdout.flush()
        parent_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.read_fd)
            os.close(self._request_fd)
            _be_child(job, Channel(rank, write_fd, request_fd), log_path, parent_pid)
        os.close(write_fd)
        os.close(request_fd)
        self.baseline_bytes = data_bytes(self.pid)
        self.begin(Phase.LOAD)
        # It may die before the first look in turn, and then something is known of it all the same.
        self.look()

    def begin(self, phase: Phase) -> None:
        """Forget how the last request ended: the next one is under way."""
        self.phase = phase
        self.heard = False
        self.final: dict[str, Any] | None = None
        self.ready = False
        self.ended: str | None = None
        self._computed_at = time.monotonic()

    def send(self, request: dict[str, Any]) -> None:
        """Give a process that is ready its next request; one that has died is noticed by its silence."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._request_fd, (json.dumps(request) + "\n").encode())

    def drain(self) -> list[dict[str, Any]] | None:
        """The complete events that have arrived; None once the pipe is closed."""
        chunk = os.read(self.read_fd, 1 << 16)
        if not chunk:
            return None
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines if line]

    def take(self, event: dict[str, Any]) -> None:
        """Remember what an event says of the request's state."""
        self.heard = True
        if event["event"] == "done":
            self.final, self.ready = event["body"], event["ready"]
        elif event["event"] == "phase":
            self.phase = Phase(event["phase"])

    def look(self) -> None:
        """Remember how much memory it holds, for when it dies without a word."""
        with contextlib.suppress(OSError):
            self.last_data_bytes = data_bytes(self.pid) or self.last_data_bytes
            self.last_resident_bytes = resident_bytes(self.pid) or self.last_resident_bytes
            now, used = time.monotonic(), cpu_seconds(self.pid)
            if used - self._cpu_seconds > 0.05 * (now - self._computed_at):
                self._cpu_seconds, self._computed_at = used, now

    def stalled_at(self, limit_bytes: int) -> bool:
        """Whether it sits still close to its memory limit."""
        room = limit_bytes - (self.last_data_bytes - self.baseline_bytes)
        return room < STALL_ROOM_BYTES and time.monotonic() - self._computed_at > STALL_SECONDS

    def end(self, reason: str) -> None:
        """Kill it before its time."""
        self.ended = reason
        self.kill()

    def kill(self) -> None:
        """End it and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.exit_status is None:
            # It may not have made its group yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Collect its exit status; its memory is given back then."""
        if self.exit_status is None:
            _, self.exit_status = os.waitpid(self.pid, 0)
            os.close(self._request_fd)


def _be_child(job: Job, channel: Channel, log_path: str, parent_pid: int) -> None:
    """The forked side: never returns."""
    status = 1
    try:
        os.setsid()
        die_with_parent(parent_pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        channel.log_to(log_path)
        job(channel)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Destructors of CUDA, NCCL and DeepSpeed can hang or crash: the answer is already sent.
        os._exit(status)
