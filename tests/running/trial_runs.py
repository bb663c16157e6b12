"""Runs one real trial after another in the pre-warmed process, each in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from autotune.models import resolve_model
from autotune.running.runner import OnEvent, TrialRunner
from trials.wire import Device, ModelSpec, Point, TrialResult, TrialSpec

CPU_OPS = ("cpu_adam", "shared_memory_communication")


class Trials:
    """A started runner, short trials on it, and what they left behind.

    Args:
        runner: not yet started.
        folder: existing folder for everything the trials write.
        device: where they run.
        ops: compiled before the first trial.
    """

    def __init__(self, runner: TrialRunner, folder: Path, device: Device, ops: tuple[str, ...]) -> None:
        self.runner = runner
        self.device: Device = device
        self.torch_adam = device == "cpu"
        self.missing_ops: Mapping[str, str] = runner.prepare(ops, lambda message: None)
        self.events: list[dict[str, Any]] = []
        self._folder = folder
        self._count = 0

    def spec(self, point: Point, *, model: str | ModelSpec = "tiny-llama", **values: Any) -> TrialSpec:
        """A specification with few and short steps; `values` replace any of its fields."""
        self._count += 1
        work = self._folder / f"trial-{self._count}"
        work.mkdir()
        fields: dict[str, Any] = {
            "trial_id": str(self._count),
            "model": resolve_model(model) if isinstance(model, str) else model,
            "point": point,
            "seq_len": 64,
            "device": self.device,
            "torch_adam": self.torch_adam,
            "max_timed_steps": 2,
            "log_path": str(work / "log"),
            "work_dir": str(work),
        }
        return TrialSpec(**{**fields, **values})

    def run(
        self,
        point: Point | None = None,
        *,
        timeout_seconds: float = 120.0,
        on_event: OnEvent | None = None,
        fresh: bool = True,
        **values: Any,
    ) -> TrialResult:
        """Run a trial to its end; `events` then holds what it told, and a failing test its output.

        Unless told otherwise, in a process of its own.
        """
        spec = self.spec(point or Point(), **values)
        self.events = []

        def keep(event: dict[str, Any]) -> None:
            self.events.append(event)
            if on_event is not None:
                on_event(event)

        result = self.runner.run(spec, timeout_seconds=timeout_seconds, on_event=keep, fresh=fresh)
        log = Path(spec.log_path)
        print(f"--- {result.outcome} in {result.phase}: {result.message}")
        print(log.read_text(errors="replace")[-4000:] if log.exists() else "(no output)")
        return result

    def phases(self) -> list[str]:
        """The phases the last trial told, in order."""
        return [event["phase"] for event in self.events if event["event"] == "phase"]

    def server(self) -> psutil.Process:
        """The pre-warmed process."""
        process = self.runner._process
        assert process is not None
        return psutil.Process(process.pid)

    def trial_processes(self) -> list[psutil.Process]:
        """The processes of the trial that runs now."""
        return self.server().children(recursive=True)


def asked_bytes(message: str) -> int | None:
    """What a refusal of torch's CPU allocator says it was asked for."""
    match = re.search(r"you tried to allocate (\d+) bytes", message)
    return int(match[1]) if match else None
