"""The pre-warmed process: has torch and transformers loaded and no CUDA, and is forked for each job.

Started as `python -m trials.server cuda|cpu [MODEL_TYPE]`. Requests come as JSON lines on standard input,
events leave as JSON lines on standard output; every job ends with exactly one `done` event. It has no
threads, so that a fork is safe; a job is a process group of its own and dies with it, as it dies with its
parent. What may be loaded before the fork is `trials.preload`'s concern.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from trials.afterlife import PEER_FAILED, Death, result_of_death
from trials.device_memory import cpu_seconds, data_bytes, resident_bytes
from trials.preload import preload, thread_names
from trials.wire import ModelSpec, Outcome, Phase, TrialResult, TrialSpec

POLL_SECONDS = 0.02
# A CPU trial that computes nothing for so long, with less room than this under its limit, waits for a
# thread that could not be started (Gloo's destructor does): it ran out of memory, and will never say so.
STALL_SECONDS = 5.0
STALL_ROOM_BYTES = 32 << 20
_PR_SET_PDEATHSIG = 1

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

Report = Callable[[dict[str, Any]], None]
Job = Callable[[int, Report], dict[str, Any]]


def die_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends; end now if it is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


class Child:
    """One forked process of a job, and the pipe its events come through."""

    def __init__(self, job: Job, rank: int, log_path: str) -> None:
        self.rank = rank
        self.phase = Phase.LOAD
        self.final: dict[str, Any] | None = None
        self.exit_status: int | None = None
        self.ended: str | None = None
        self.last_data_bytes = 0
        self.last_resident_bytes = 0
        self._cpu_seconds = 0.0
        self._computed_at = time.monotonic()
        self._buffer = b""
        self.read_fd, write_fd = os.pipe()
        sys.stdout.flush()
        parent_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.read_fd)
            _be_child(job, rank, write_fd, log_path, parent_pid)
        os.close(write_fd)
        self.baseline_bytes = data_bytes(self.pid)
        # It may die before the first look in turn, and then something is known of it all the same.
        self.look()

    def drain(self) -> list[dict[str, Any]] | None:
        """The complete events that have arrived; None once the pipe is closed."""
        chunk = os.read(self.read_fd, 1 << 16)
        if not chunk:
            return None
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines if line]

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
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Collect its exit status."""
        if self.exit_status is None:
            _, self.exit_status = os.waitpid(self.pid, 0)


def _be_child(job: Job, rank: int, write_fd: int, log_path: str, parent_pid: int) -> None:
    """The forked side: never returns."""
    status = 1
    try:
        os.setsid()
        die_with_parent(parent_pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)

        def report(event: dict[str, Any]) -> None:
            data = (json.dumps(event) + "\n").encode()
            while data:
                data = data[os.write(write_fd, data) :]

        body = job(rank, report)
        report({"event": "done", "body": body})
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


class Server:
    """Reads requests, runs one job at a time and forwards its events."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ, "requests")
        self._requests: list[dict[str, Any]] = []
        self._incoming = b""
        self._open = True

    def serve(self) -> None:
        """Until standard input is closed."""
        self._send({"event": "ready", "pid": os.getpid()})
        while self._open or self._requests:
            while not self._requests and self._open:
                self._read_requests(None)
            if self._requests:
                request = self._requests.pop(0)
                if request["request"] != "kill":  # nothing is running any more
                    self._answer(request)

    def _answer(self, request: dict[str, Any]) -> None:
        kind = request["request"]
        if kind == "trial":
            spec = TrialSpec.model_validate(request["spec"])
            self._send({"event": "done", "body": self._trial(spec, request.get("timeout_seconds"))})
            return
        job = {"ops": _ops_job, "inspect": _inspect_job, "probe": _probe_job}[kind](request, self._device)
        [child] = self._run([job], request["log_path"], request.get("timeout_seconds"), None, None)
        status = os.waitstatus_to_exitcode(child.exit_status or 0)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        body = child.final or {"error": f"it {how}; its output is in {request['log_path']}", "died": True}
        if kind == "ops" and self._device == "cpu" and "failed" in body:
            from trials.ops import load_ops

            load_ops([name for name in request["ops"] if name not in body["failed"]])
        self._send({"event": "done", "body": body})

    def _trial(self, spec: TrialSpec, timeout_seconds: float | None) -> dict[str, Any]:
        began = time.monotonic()

        def job(rank: int, report: Report) -> dict[str, Any]:
            from trials.trial import Trial

            return Trial(spec, rank, report, began).run().model_dump(mode="json")

        data_limit = spec.budget_bytes if spec.device == "cpu" else None
        children = self._run(
            [job] * spec.processes, spec.log_path, timeout_seconds, spec.host_budget_bytes, data_limit
        )
        results = [
            TrialResult.model_validate(child.final)
            if child.final is not None
            else result_of_death(spec, _death(child, time.monotonic() - began))
            for child in children
        ]
        return merge(results).model_dump(mode="json")

    def _run(
        self,
        jobs: list[Job],
        log_path: str,
        timeout_seconds: float | None,
        host_budget_bytes: int | None,
        data_limit_bytes: int | None,
    ) -> list[Child]:
        """Fork a process per job and wait for all."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        children = [Child(job, rank, log_path) for rank, job in enumerate(jobs)]
        for child in children:
            self._selector.register(child.read_fd, selectors.EVENT_READ, child)
        running = set(children)
        while running:
            self._read_events(running)
            if not running:
                break
            reason = self._reason_to_end(running, children, deadline, host_budget_bytes)
            if data_limit_bytes is not None and any(child.stalled_at(data_limit_bytes) for child in running):
                reason = reason or "stalled"
            for child in running:
                if reason and child.ended is None:
                    child.end(reason)
        for child in children:
            child.reap()
            # Whatever the job started in the background ends with it.
            child.kill()
        return children

    def _reason_to_end(
        self,
        running: set[Child],
        children: list[Child],
        deadline: float | None,
        host_budget_bytes: int | None,
    ) -> str | None:
        if not self._open or any(request["request"] == "kill" for request in self._requests):
            self._requests = [request for request in self._requests if request["request"] != "kill"]
            return "killed"
        if deadline is not None and time.monotonic() > deadline:
            return "timeout"
        for child in running:
            child.look()
        resident = sum(child.last_resident_bytes for child in running)
        if host_budget_bytes is not None and resident > host_budget_bytes:
            return "host_oom"
        # One process that failed leaves the others waiting in a collective for ever.
        over = [child for child in children if child not in running]
        if any(
            child.final is None or child.final.get("outcome") not in ("ok", "stopped", None) for child in over
        ):
            return "peer"
        return None

    def _read_events(self, running: set[Child]) -> None:
        for key, _ in self._selector.select(POLL_SECONDS):
            if key.data == "requests":
                self._take_requests()
                continue
            child: Child = key.data
            events = child.drain()
            if events is None:
                self._selector.unregister(child.read_fd)
                os.close(child.read_fd)
                child.reap()
                running.discard(child)
                continue
            for event in events:
                if event["event"] == "done":
                    child.final = event["body"]
                    continue
                if event["event"] == "phase":
                    child.phase = Phase(event["phase"])
                if child.rank == 0:
                    self._send(event)

    def _read_requests(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            if key.data == "requests":
                self._take_requests()

    def _take_requests(self) -> None:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            self._open = False
            self._selector.unregister(0)
            return
        *lines, self._incoming = (self._incoming + chunk).split(b"\n")
        self._requests += [json.loads(line) for line in lines if line]

    def _send(self, event: dict[str, Any]) -> None:
        try:
            _wire.write(json.dumps(event) + "\n")
            _wire.flush()
        except BrokenPipeError:
            self._open = False


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
    hosts = [result.host_peak_bytes for result in results if result.host_peak_bytes is not None]
    largest["host_peak_bytes"] = sum(hosts) if hosts else None
    return chosen.model_copy(update=largest)


def _death(child: Child, seconds: float) -> Death:
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


def _ops_job(request: dict[str, Any], device: str) -> Job:
    def job(rank: int, report: Report) -> dict[str, Any]:
        from trials.ops import build_ops

        return {"failed": build_ops(request["ops"], device, report)}

    return job


def _inspect_job(request: dict[str, Any], device: str) -> Job:
    def job(rank: int, report: Report) -> dict[str, Any]:
        from trials.inspection import inspect_model
        from trials.model_build import InvalidPoint

        try:
            return inspect_model(ModelSpec.model_validate(request["model"]))
        except InvalidPoint as error:
            return {"error": str(error)}

    return job


def _probe_job(request: dict[str, Any], device: str) -> Job:
    def job(rank: int, report: Report) -> dict[str, Any]:
        from trials.probe import probe_machine

        return dict(probe_machine(device))

    return job


def main() -> None:
    """Serve until the controller goes away."""
    global _wire
    device = sys.argv[1]
    model_type = sys.argv[2] if len(sys.argv) > 2 else None
    die_with_parent()
    # The terminal's signals go to its whole process group; they are for the controller, which then tells us.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Libraries print on standard output; the wire keeps a descriptor of its own.
    _wire = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    preload(device, model_type)
    print(f"ready; threads: {thread_names()}", file=sys.stderr, flush=True)
    Server(device).serve()
    # Nothing is left to clean up, and the libraries' own clean-up takes seconds.
    os._exit(0)


_wire: Any = sys.stdout

if __name__ == "__main__":
    main()
