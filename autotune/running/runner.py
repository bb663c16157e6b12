"""Sends specifications to the pre-warmed process and brings results back."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from autotune.errors import EnvironmentProblem, UsageError
from autotune.running.environment import trial_environment
from trials.wire import Device, ModelSpec, Outcome, Phase, TrialResult, TrialSpec

START_TIMEOUT_SECONDS = 300.0
OPS_TIMEOUT_SECONDS = 900.0
INSPECTION_TIMEOUT_SECONDS = 300.0
PROBE_TIMEOUT_SECONDS = 120.0
# The server keeps the trial's time itself; this is for a server that does not answer any more.
GRACE_SECONDS = 30.0

OnEvent = Callable[[dict[str, Any]], None]


class TrialRunner:
    """A pre-warmed process that runs one trial at a time; use it as a context manager.

    Args:
        device: where trials run.
        model_type: transformers' model type whose code is loaded ahead; None loads it in each trial.
        log_dir: existing folder for the process' own log.
    """

    def __init__(self, device: Device, *, model_type: str | None, log_dir: Path) -> None:
        self._device = device
        self._model_type = model_type
        self._log_dir = log_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._incoming = b""

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def prepare(self, ops: Collection[str], on_message: Callable[[str], None]) -> Mapping[str, str]:
        """Start the process and compile DeepSpeed's operators.

        Args:
            ops: names of `trials.ops.BUILDERS`; what is compiled already costs a moment.
            on_message: told what is being built.

        Returns:
            The operators that could not be built, with the reason.

        Raises:
            EnvironmentProblem: the process does not start (a library is missing or broken).
        """
        self._start()
        if not ops:
            return {}
        body = self._job(
            {"request": "ops", "ops": sorted(ops)},
            "ops.log",
            OPS_TIMEOUT_SECONDS,
            lambda event: on_message(event["text"]) if event["event"] == "note" else None,
        )
        if "error" in body:
            return dict.fromkeys(ops, str(body["error"]))
        return dict(body["failed"])

    def inspect_model(self, model: ModelSpec, lora_targets: Collection[str] | None = None) -> dict[str, Any]:
        """What the installed libraries can do with a model: see `trials.inspection.inspect_model`.

        Args:
            model: to look at.
            lora_targets: module names that adapters are wanted for; None: any that there are.

        Raises:
            EnvironmentProblem: the libraries cannot build it.
            UsageError: it has no such modules.
        """
        targets = None if lora_targets is None else list(lora_targets)
        body = self._job(
            {"request": "inspect", "model": model.model_dump(mode="json"), "lora_targets": targets},
            "inspection.log",
            INSPECTION_TIMEOUT_SECONDS,
            None,
        )
        if body.get("died"):
            raise EnvironmentProblem(
                f"looking at {model.name} failed: {body['error']}",
                "check the sizes in its config.json, and the machine's free memory",
            )
        if "error" in body:
            raise EnvironmentProblem(
                f"{model.name} cannot be built: {body['error']}",
                "check its config.json; another version of transformers may know more",
            )
        if body["refused_targets"]:
            raise UsageError(
                f"--lora-targets {','.join(targets or ())}: {body['refused_targets']}",
                "give names of these, with commas between them",
            )
        return body

    def probe_machine(self) -> dict[str, Any]:
        """The machine's rates, see `trials.probe.probe_machine`; or `error`, where none were measured."""
        return self._job({"request": "probe"}, "probe.log", PROBE_TIMEOUT_SECONDS, None)

    def run(
        self,
        spec: TrialSpec,
        *,
        timeout_seconds: float,
        on_event: OnEvent | None = None,
        fresh: bool = False,
    ) -> TrialResult:
        """Run one trial: on the last one's engine where that is of its build, else in a new process.

        Args:
            spec: what to run; its log's and its work folder must exist.
            timeout_seconds: the trial is killed after this long, and its result says so.
            on_event: called with each event as it comes.
            fresh: in a process of its own, which ends with it; a confirmation always has one.

        Returns:
            The result, whatever the trial does.

        Raises:
            KeyboardInterrupt: after the trial was killed.
        """
        self._start()
        request = {
            "request": "trial",
            "spec": spec.model_dump(mode="json"),
            "timeout_seconds": timeout_seconds,
            "fresh": fresh,
        }
        phase = Phase.LOAD
        began = time.monotonic()
        try:
            self._send(request)
            for event in self._events(timeout_seconds + GRACE_SECONDS):
                if event["event"] == "done":
                    return TrialResult.model_validate(event["body"])
                if event["event"] == "phase":
                    phase = Phase(event["phase"])
                if on_event is not None:
                    on_event(event)
        except BaseException:
            # Ctrl-C, or an error in on_event: the trial must not live on.
            self._kill_trial()
            raise
        # The events of a process that died end a moment before it can be asked how: that comes first.
        words = self._last_words()
        outcome = Outcome.TIMEOUT if self._alive() else Outcome.CRASH
        self.close()
        return TrialResult(
            trial_id=spec.trial_id,
            outcome=outcome,
            phase=phase,
            message="the trial's process does not answer" if outcome is Outcome.TIMEOUT else words,
            trial_seconds=time.monotonic() - began,
        )

    def release(self) -> None:
        """Give back the memory of an engine that waits for another point, if there is one."""
        if not self._alive():
            return
        self._send({"request": "release"})
        for event in self._events(GRACE_SECONDS):
            if event["event"] == "done":
                return
        self.close()

    def close(self) -> None:
        """End the process and every trial."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._incoming = b""

    def _start(self) -> None:
        if self._alive():
            return
        self.close()
        command = [sys.executable, "-m", "trials.server", self._device]
        if self._model_type:
            command.append(self._model_type)
        with self._log_path("server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=trial_environment(self._device, os.environ),
            )
        for event in self._events(START_TIMEOUT_SECONDS):
            if event["event"] == "ready":
                return
        words = self._last_words()
        self.close()
        raise EnvironmentProblem(
            f"the trial process does not start: {words}", "autotune doctor checks the machine"
        )

    def _job(
        self, request: dict[str, Any], log: str, timeout_seconds: float, on_event: OnEvent | None
    ) -> dict[str, Any]:
        self._start()
        self._send({**request, "log_path": str(self._log_path(log)), "timeout_seconds": timeout_seconds})
        try:
            for event in self._events(timeout_seconds + GRACE_SECONDS):
                if event["event"] == "done":
                    return dict(event["body"])
                if on_event is not None:
                    on_event(event)
        except BaseException:
            self._kill_trial()
            raise
        words = self._last_words()
        self.close()
        return {"error": words}

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            # A process that has died is noticed when its events end.
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()

    def _events(self, timeout_seconds: float) -> Iterator[dict[str, Any]]:
        """Events until the process ends or the time is up."""
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + timeout_seconds
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                line, newline, rest = self._incoming.partition(b"\n")
                if newline:
                    # Taken before it is given: whoever reads may stop at any event.
                    self._incoming = rest
                    if line:
                        yield json.loads(line)
                    continue
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    return
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    return
                self._incoming += chunk

    def _kill_trial(self) -> None:
        """End the running job and forget its last words; the process itself lives on if it answers."""
        if not self._alive():
            return
        with contextlib.suppress(Exception):
            self._send({"request": "kill"})
            for event in self._events(10.0):
                if event["event"] == "done":
                    return
        self.close()

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _last_words(self) -> str:
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(timeout=2)
        if status is not None and status < 0:
            return f"the trial process died of {signal.Signals(-status).name}"
        try:
            lines = self._log_path("server.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "no reason given"

    def _log_path(self, name: str) -> Path:
        return self._log_dir / name
