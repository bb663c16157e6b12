"""Predictions of configurations that were measured on an H200, and a foresight that has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.models import resolve_model
from autotune.planning.outlook import Budgets
from autotune.prediction import Prediction, Predictor
from autotune.running import Machine, OutsideShare
from autotune.running.kept_json import KeptJson
from autotune.space import Capabilities
from autotune.throughput import Rates
from autotune.tuning.corrections import Corrections
from autotune.tuning.foreseen import Foreseen
from autotune.tuning.foresight import Foresight
from trials.wire import ModelSpec, Outcome, Phase, Point, TrialResult

MIB, GIB = 2**20, 2**30
ROWS = Path(__file__).parents[2] / "benchmarks" / "memory" / "h200_memory.jsonl"
# NVML less reserved in every plain run on that machine.
OUTSIDE_BYTES = 1942 * MIB
LLAMA2_PARAMETERS = 6_738_415_616


def measured_row(**wanted: Any) -> dict[str, Any]:
    """The one row of the shared H200 measurements that has these values."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    [row] = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return dict(row)


def point_of(row: Mapping[str, Any]) -> Point:
    """The row's configuration."""
    return Point(**{name: row[name] for name in Point.model_fields if name in row})


def phases_of(row: Mapping[str, Any], **changed: int) -> dict[str, int]:
    """The row's peaks by phase; `changed` replaces some."""
    measured = row["measured"]
    return {
        "load": measured["setup_peak_allocated_bytes"],
        "start": measured["engine_allocated_bytes"],
        "first_step": measured["first_step_peak_allocated_bytes"],
        "later_step": measured["peak_allocated_bytes"],
    } | changed


def prediction(phases: Mapping[str, int], *, exact: bool = True, host_bytes: int = 2 * GIB) -> Prediction:
    """A prediction with these peaks, needing one page of 20 MiB more than it allocates."""
    steps = max(phases["first_step"], phases["later_step"])
    cap = max(phases.values()) + 20 * MIB
    return Prediction(
        peak_allocated_bytes=steps,
        setup_peak_allocated_bytes=max(phases["load"], phases["start"]),
        phase_peak_allocated_bytes=dict(phases),
        peak_reserved_bytes=cap,
        required_device_bytes=cap + OUTSIDE_BYTES,
        confirmed_required_device_bytes=cap + OUTSIDE_BYTES,
        device_bytes=cap + OUTSIDE_BYTES,
        outside_allocator_bytes=OUTSIDE_BYTES,
        host_peak_bytes=host_bytes,
        breakdown={"weights": steps},
        phase="backward",
        trainable_parameters=40_000_000,
        total_parameters=LLAMA2_PARAMETERS,
        exact=exact,
    )


def result(phases: Mapping[str, int], outcome: Outcome = Outcome.OK, **values: Any) -> TrialResult:
    """What a trial with these peaks reports."""
    known: dict[str, Any] = {"trial_id": "t", "outcome": outcome, "phase": Phase.LATER_STEP}
    return TrialResult(**known | {"phase_peak_allocated_bytes": dict(phases)} | values)


def h200(**values: Any) -> Machine:
    """The machine the rows were measured on."""
    capabilities = Capabilities(device="cuda", fp16=True, liger=True, bitsandbytes=True)
    known: dict[str, Any] = {
        "device": "cuda", "gpu_name": "NVIDIA H200", "gpus": 1, "total_bytes": 140 * GIB, "used_bytes": 0,
        "free_host_bytes": 200 * GIB, "driver": "580.95.05", "compute_capability": (9, 0),
        "cuda_compiler": True, "host_compiler": True, "capabilities": capabilities,
        "versions": {"torch": "2.11.0"},
    }  # fmt: skip
    return Machine(**known | values)


class Heard(list[str]):
    """What was said."""

    def __call__(self, text: str) -> None:
        self.append(text)


def make_foresight(
    folder: Path,
    *,
    budget_bytes: int | None = 24 * GIB,
    host_bytes: int | None = 200 * GIB,
    model: ModelSpec | None = None,
    digest: str = "m",
    say: Heard | None = None,
    predictor: Predictor | None = None,
) -> Foresight:
    """A foresight of an H200 that knows nothing yet; its own predictor starts no process unasked."""
    machine = h200()
    about = Foreseen(
        model=model or resolve_model("llama2-7b"),
        seq_len=1024,
        lora_targets=None,
        processes=1,
        budgets=Budgets(budget_bytes, host_bytes),
        rates=Rates(),
    )
    corrections = Corrections(KeptJson(folder / "machine.json"), "H200 | llama", digest)
    predictor = predictor or Predictor(gpu="9.0", cache_dir=folder / "traces", workers=1)
    return Foresight(
        about, predictor, OutsideShare(machine, folder), corrections, Heard() if say is None else say
    )
