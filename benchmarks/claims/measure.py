"""`python -m benchmarks.claims.measure`: runs the cases on this machine's GPUs, each under the cap it names.

One trial a case, a few steps; results are appended as they come, and what the output holds is not run again.
A case whose configuration ran under a smaller cap is not run under the larger one. Cases with more GPUs than
the machine has are left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from autotune.models import resolve_model
from autotune.prediction.hardware import Hardware, outside_allocator_bytes
from autotune.running.machine import Machine, inspect_machine
from autotune.running.ops import needed_ops
from autotune.running.runner import TrialRunner
from autotune.sizes import format_size
from benchmarks.claims.cases import GIB, Case, claims
from benchmarks.json_rows import append_row, read_rows
from trials.wire import TrialSpec

OUTPUT = Path(__file__).parent / "h200.jsonl"
TIMEOUT_SECONDS = 240.0


def main() -> None:
    """Run what is not measured yet, until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims.measure", description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--seconds", type=float, default=480.0, help="start no further trial after this long")
    arguments = parser.parse_args()
    begun = time.monotonic()
    machine = inspect_machine("cuda")
    measured = read_rows(arguments.output)
    cases = sorted((case for claim in claims() for case in claim.cases), key=_order)
    with (
        tempfile.TemporaryDirectory() as scratch,
        TrialRunner("cuda", model_type="llama", log_dir=Path(scratch)) as runner,
    ):
        runner.prepare(needed_ops((case.point for case in cases), machine), print)
        for case in cases:
            if case.gpus > machine.gpus or row_of(case, measured) is not None:
                continue
            if time.monotonic() - begun > arguments.seconds:
                print(f"time is up before {case.model} under {case.budget_gib} GiB", flush=True)
                continue
            append_row(arguments.output, measured, _measured(case, runner, Path(scratch), machine))


def _order(case: Case) -> tuple[bool, int]:
    """Quick cases first, and of one configuration the smallest cap, which may make the others superfluous."""
    return case.point.lora_rank == 0 and case.point.offload != "none", case.budget_gib


def row_of(case: Case, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The row that decides a case: its own, or the same configuration running well under a smaller cap."""
    about = _about(case)
    same = [row for row in rows if row["case"] == about]
    own = [row for row in same if row["budget_gib"] == case.budget_gib]
    ran = [row for row in same if row["result"]["outcome"] == "ok" and row["budget_gib"] < case.budget_gib]
    return next(iter(own or ran), None)


def _about(case: Case) -> dict[str, Any]:
    point = case.point.model_dump(mode="json")
    return {"model": case.model, "point": point, "seq_len": case.seq_len, "gpus": case.gpus}


def _measured(case: Case, runner: TrialRunner, scratch: Path, machine: Machine) -> dict[str, Any]:
    name = f"claim-{len(list(scratch.glob('*.log')))}"
    work = scratch / name
    work.mkdir()
    began = time.monotonic()
    result = runner.run(
        TrialSpec(
            trial_id=name,
            model=resolve_model(case.model),
            point=case.point,
            seq_len=case.seq_len,
            processes=case.gpus,
            budget_bytes=case.budget_gib * GIB,
            outside_allocator_bytes=outside_allocator_bytes(Hardware(), case.point),
            torch_adam=machine.torch_adam,
            warmup_steps=2,
            min_timed_steps=2,
            max_timed_steps=6,
            measure_seconds=4.0,
            log_path=str(scratch / f"{name}.log"),
            work_dir=str(work),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    )
    speed = f", {result.tokens_per_second:,.0f} tokens/s" if result.tokens_per_second else ""
    print(
        f"{case.model} under {case.budget_gib} GiB: {result.outcome}{speed}, required "
        f"{format_size(result.required_device_bytes or 1)}, host {format_size(result.host_peak_bytes or 1)}, "
        f"{time.monotonic() - began:.0f} s {result.message}",
        flush=True,
    )
    values = result.model_dump(mode="json", exclude={"ds_config", "losses"})
    return {"case": _about(case), "budget_gib": case.budget_gib, "result": values}


if __name__ == "__main__":
    main()
