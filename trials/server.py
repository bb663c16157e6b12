"""The pre-warmed process: has torch and transformers loaded and no CUDA, and is forked for each job.

Started as `python -m trials.server cuda|cpu [MODEL_TYPE]`. Requests come as JSON lines on standard input,
events leave as JSON lines on standard output; every job ends with exactly one `done` event. It has no
threads, so that a fork is safe. What may be loaded before the fork is `trials.preload`'s concern.

A trial's processes stay when they can take another point of the same build, and the next trial that asks for
one is measured there; anything else ends them first, and so does waiting too long.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any

from trials.afterlife import result_of_death
from trials.children import Channel, Job, die_with_parent
from trials.group import Group, Limits, death_of
from trials.merging import merge
from trials.preload import preload, thread_names
from trials.requests import Requests
from trials.wire import Device, ModelSpec, Outcome, Phase, TrialResult, TrialSpec

# A live engine holds the device's memory: it is not kept for a controller that does something else.
IDLE_SECONDS = 60.0
MOST_REASON_LETTERS = 300
# What a used engine did so may be its own history's doing: the point is measured in a fresh one.
_OWN_FAULT = frozenset({Outcome.CRASH, Outcome.NAN, Outcome.INVALID, Outcome.HOST_OOM})
# On the CPU memory that libraries keep for themselves counts against the limit.
DOUBTFUL: dict[Device, frozenset[Outcome]] = {"cuda": _OWN_FAULT, "cpu": _OWN_FAULT | {Outcome.OOM}}


class Server:
    """Reads requests, runs one job at a time and forwards its events."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._selector = selectors.DefaultSelector()
        self._requests = Requests(self._selector)
        self._live: _LiveTrial | None = None

    def serve(self) -> None:
        """Until standard input is closed."""
        self._send({"event": "ready", "pid": os.getpid()})
        while self._requests.open or self._requests.pending:
            self._idle()
            if self._requests.pending:
                request = self._requests.pending.pop(0)
                if request["request"] != "kill":  # nothing is running any more
                    self._answer(request)
        self._end_live()

    def _idle(self) -> None:
        """Until there is a request; a process that waits for one is ended when none comes for long."""
        since = time.monotonic()
        while self._requests.open and not self._requests.pending:
            left = None
            if self._live is not None:
                left = since + IDLE_SECONDS - time.monotonic()
                if left <= 0 or not self._live.group.is_ready:
                    self._end_live()
                    continue
            for key, _ in self._selector.select(left):
                if key.data is self._requests:
                    self._requests.take()
                elif self._live is not None:
                    self._live.group.hear_idle(key)

    def _answer(self, request: dict[str, Any]) -> None:
        kind = request["request"]
        if kind == "trial":
            spec = TrialSpec.model_validate(request["spec"])
            body = self._trial(spec, request.get("timeout_seconds"), fresh=request.get("fresh", True))
            self._send({"event": "done", "body": body})
            return
        self._end_live()
        if kind == "release":
            self._send({"event": "done", "body": {}})
            return
        job = {"ops": _ops_job, "inspect": _inspect_job, "probe": _probe_job}[kind](request, self._device)
        group = self._fork(job, 1, request["log_path"])
        group.wait(Limits(_deadline(request.get("timeout_seconds"))))
        [child] = group.children
        status = os.waitstatus_to_exitcode(child.exit_status or 0)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        body = child.final or {"error": f"it {how}; its output is in {request['log_path']}", "died": True}
        if kind == "ops" and self._device == "cpu" and "failed" in body:
            from trials.ops import load_ops

            load_ops([name for name in request["ops"] if name not in body["failed"]])
        self._send({"event": "done", "body": body})

    def _trial(self, spec: TrialSpec, timeout_seconds: float | None, *, fresh: bool) -> dict[str, Any]:
        deadline = _deadline(timeout_seconds)
        fresh = fresh or spec.confirm
        if self._live is not None and not fresh and self._live.can_take(spec):
            result = self._live.measure(spec, deadline)
            if not self._live.group.is_ready:
                self._live = None
            if result is not None:
                return result.model_dump(mode="json")
        self._end_live()
        job = _trial_job(spec, keep=not fresh)
        trial = _LiveTrial(self._fork(job, spec.processes, spec.log_path), spec)
        result = trial.first(deadline)
        self._live = trial if trial.group.is_ready else None
        return result.model_dump(mode="json")

    def _fork(self, job: Job, count: int, log_path: str) -> Group:
        return Group(job, count, log_path, selector=self._selector, requests=self._requests, send=self._send)

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.group.end()
            self._live = None

    def _send(self, event: dict[str, Any]) -> None:
        try:
            _wire.write(json.dumps(event) + "\n")
            _wire.flush()
        except BrokenPipeError:
            self._requests.open = False


class _LiveTrial:
    """A trial's processes, which may be asked for further points of their build.

    Args:
        group: forked for this specification.
        spec: what they run first.
    """

    def __init__(self, group: Group, spec: TrialSpec) -> None:
        self.group = group
        self._spec = spec
        self._setup_bytes = 0

    def first(self, deadline: float | None) -> TrialResult:
        """The result of what they were forked for."""
        result = self._wait(self._spec, time.monotonic(), deadline)
        self._setup_bytes = result.setup_peak_allocated_bytes or 0
        return result

    def can_take(self, spec: TrialSpec) -> bool:
        """Whether another specification differs only in what a live engine can change."""
        if not self.group.is_ready or spec.build != self._spec.build:
            return False
        # Under a smaller budget this engine could not have been built.
        room = None if spec.budget_bytes is None else spec.budget_bytes - spec.outside_allocator_bytes
        return room is None or room >= self._setup_bytes

    def measure(self, spec: TrialSpec, deadline: float | None) -> TrialResult | None:
        """Another point's result; None where a fresh process must say how it is."""
        began = time.monotonic()
        self.group.ask({"spec": spec.model_dump(mode="json")}, Phase.FIRST_STEP)
        result = self._wait(spec, began, deadline)
        if any(child.ended in ("killed", "timeout") for child in self.group.children):
            return result
        # One that died while it waited never heard of this trial.
        heard = all(child.heard for child in self.group.children)
        return result if heard and result.outcome not in DOUBTFUL[spec.device] else None

    def _wait(self, spec: TrialSpec, began: float, deadline: float | None) -> TrialResult:
        data_limit = spec.budget_bytes if spec.device == "cpu" else None
        self.group.wait(Limits(deadline, spec.host_budget_bytes, data_limit))
        return merge(
            [
                TrialResult.model_validate(child.final)
                if child.final is not None
                else result_of_death(spec, death_of(child, time.monotonic() - began))
                for child in self.group.children
            ]
        )


def _deadline(timeout_seconds: float | None) -> float | None:
    return None if timeout_seconds is None else time.monotonic() + timeout_seconds


def _trial_job(spec: TrialSpec, *, keep: bool) -> Job:
    began = time.monotonic()

    def job(channel: Channel) -> None:
        from trials.serving import serve_trials

        serve_trials(channel, spec, began, keep=keep)

    return job


def _ops_job(request: dict[str, Any], device: str) -> Job:
    def job(channel: Channel) -> None:
        from trials.ops import build_ops

        channel.done({"failed": build_ops(request["ops"], device, channel.report)})

    return job


def _inspect_job(request: dict[str, Any], device: str) -> Job:
    def job(channel: Channel) -> None:
        from trials.inspection import inspect_model
        from trials.model_build import InvalidPoint

        model = ModelSpec.model_validate(request["model"])
        try:
            channel.done(inspect_model(model, request["lora_targets"]))
        except InvalidPoint as error:
            channel.done({"error": str(error)})
        except Exception as error:
            # Whatever a library raises over a configuration is the user's to know; the log has where.
            traceback.print_exc()
            words = " ".join(str(error).split())[:MOST_REASON_LETTERS]
            channel.done({"error": f"{type(error).__name__}: {words}"})

    return job


def _probe_job(request: dict[str, Any], device: str) -> Job:
    def job(channel: Channel) -> None:
        from trials.probe import probe_machine

        channel.done(dict(probe_machine(device)))

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
    # What is loaded stays: a trial that collects its garbage need not look at it.
    gc.collect()
    gc.freeze()
    print(f"ready; threads: {thread_names()}", file=sys.stderr, flush=True)
    Server(device).serve()
    # Nothing is left to clean up, and the libraries' own clean-up takes seconds.
    os._exit(0)


_wire: Any = sys.stdout

if __name__ == "__main__":
    main()
