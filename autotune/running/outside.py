"""The share of device memory outside PyTorch's allocator: a constant of the machine, measured once and kept.

CUDA's context, library workspaces and communicators do not depend on the model, but on what is used: ZeRO-3
opens a further communicator, fp32 and CPU offload load other kernels. So there is one figure per kind of
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from autotune.running.kept_json import KeptJson
from autotune.running.machine import Machine
from autotune.running.runner import TrialRunner
from trials.wire import Outcome, Point, TrialResult, TrialSpec

PROBE_MODEL = "tiny-llama"
PROBE_SEQ_LEN = 512
PROBE_TIMEOUT_SECONDS = 300.0


def kind_of(point: Point) -> str:
    """The kind of configuration whose share a point has."""
    stage = "stage3" if point.zero_stage == 3 else "stage0-2"
    offload = "-offload" if point.offload != "none" else ""
    precision = "-fp32" if point.precision == "fp32" else ""
    return stage + offload + precision


class OutsideShare:
    """The machine's figures, in a JSON file of the user's data folder.

    Args:
        machine: whose figures; they are kept per GPU, driver and torch.
        folder: existing folder for the file.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine = machine
        self._kept = KeptJson(folder / "machine.json")
        self._key = f"{machine.gpu_name} | driver {machine.driver} | torch {machine.versions.get('torch')}"
        self._bytes = _shares(self._kept.read().get(self._key))

    def measure(
        self, runner: TrialRunner, points: Iterable[Point], folder: Path, on_message: Callable[[str], None]
    ) -> None:
        """Measure what the points need and is not known yet, by a tiny run of each kind without a limit.

        Args:
            runner: where the probes run.
            points: configurations about to be tried.
            folder: existing folder for the probes' logs.
            on_message: told what is measured.
        """
        if self._machine.device == "cpu":
            return
        from autotune.models import resolve_model

        probes = {kind_of(point): _probe(point) for point in points}
        for kind, point in sorted(probes.items()):
            if kind in self._bytes:
                continue
            on_message(f"measuring this GPU's memory outside the allocator ({kind})")
            spec = TrialSpec(
                trial_id=f"probe-{kind}",
                model=resolve_model(PROBE_MODEL),
                point=point,
                seq_len=PROBE_SEQ_LEN,
                torch_adam=self._machine.torch_adam,
                max_timed_steps=2,
                log_path=str(folder / f"probe-{kind}.log"),
                work_dir=str(folder),
            )
            (folder / "process-group").unlink(missing_ok=True)
            self.learn(point, runner.run(spec, timeout_seconds=PROBE_TIMEOUT_SECONDS, fresh=True))

    def bytes_for(self, point: Point) -> int:
        """The share to leave for a point: of its kind, else the largest known, else none."""
        if self._machine.device == "cpu":
            return 0
        return self._bytes.get(kind_of(point), max(self._bytes.values(), default=0))

    def learn(self, point: Point, result: TrialResult) -> None:
        """Keep what a trial showed: the largest share seen of its kind."""
        if self._machine.device == "cpu" or result.outcome not in (Outcome.OK, Outcome.STOPPED):
            return
        kind, seen = kind_of(point), result.outside_allocator_bytes
        if seen is not None and seen > self._bytes.get(kind, 0):
            self._bytes[kind] = seen
            self._kept.put(self._key, self._bytes)

    @property
    def known(self) -> dict[str, int]:
        """The shares by kind, in bytes."""
        return dict(self._bytes)


def _shares(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    # What is no number was not written here: measuring again is cheap.
    return {kind: share for kind, share in value.items() if isinstance(share, int)}


def _probe(point: Point) -> Point:
    """The smallest configuration of a point's kind."""
    return Point(
        precision=point.precision,
        zero_stage=point.zero_stage,
        offload=point.offload if not point.offload.startswith("nvme_") else "optimizer",
        gradient_accumulation_steps=2,
    )
