"""`python -m benchmarks.memory.measure`: runs configurations on this machine's GPU and appends their results.

Each configuration is one trial in a process forked for it, a few seconds each. What the output holds
already is not run again, so that a stopped measurement goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.models import resolve_model
from autotune.prediction.hardware import Hardware, outside_allocator_bytes
from autotune.running.machine import inspect_machine
from autotune.running.ops import needed_ops
from autotune.running.runner import TrialRunner
from benchmarks.memory.rows import HERE
from trials.wire import ModelSpec, Point, TrialSpec

CONFIGURATIONS = HERE / "configurations.jsonl"
OUTPUT = HERE / "h200_own.jsonl"
TIMEOUT_SECONDS = 120.0


def main() -> None:
    """Run what is not measured yet, until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory.measure", description=__doc__)
    parser.add_argument("--configurations", type=Path, default=CONFIGURATIONS)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--seconds", type=float, default=480.0, help="start no further trial after this long")
    arguments = parser.parse_args()
    begun = time.monotonic()
    done = _done(arguments.output)
    machine = inspect_machine("cuda")
    wanted = [item for item in configurations(arguments.configurations) if item["key"] not in done]
    print(f"{len(wanted)} configurations to measure, {len(done)} are", flush=True)
    with tempfile.TemporaryDirectory() as scratch, arguments.output.open("a") as output:
        folder = Path(scratch)
        with TrialRunner("cuda", model_type=None, log_dir=folder) as runner:
            runner.prepare(needed_ops((item["point"] for item in wanted), machine), print)
            for number, item in enumerate(wanted):
                if time.monotonic() - begun > arguments.seconds:
                    print(f"time is up: {len(wanted) - number} are left", flush=True)
                    return
                result = runner.run(
                    _spec(item, number, folder, machine.torch_adam),
                    timeout_seconds=TIMEOUT_SECONDS,
                    fresh=True,
                )
                values = {
                    "key": item["key"],
                    "model": item["model"].model_dump(mode="json"),
                    "seq_len": item["seq_len"],
                    "point": item["point"].model_dump(mode="json"),
                    "budget_bytes": item["budget_bytes"],
                    "expected": item["expected"],
                    "result": result.model_dump(mode="json", exclude={"ds_config", "losses", "step_seconds"}),
                }
                output.write(json.dumps(values) + "\n")
                output.flush()
                peak = result.peak_allocated_bytes or 0
                print(
                    f"{number + 1:3d} {result.outcome:7} {peak:>14,} {item['key']} {result.message}",
                    flush=True,
                )


def configurations(path: Path) -> Iterator[dict[str, Any]]:
    """The configurations of a file: one JSON object a line.

    Its keys: `model` (a card), `config` (changes to the card's configuration, such as fewer layers),
    `seq_len`, the point's fields, and for a run under a limit `budget_bytes` and the outcome that was
    `expected` when it was set.
    """
    for line in path.read_text().splitlines():
        if not line.strip():
            continue
        values = json.loads(line)
        key = json.dumps(values, sort_keys=True)
        spec = resolve_model(values.pop("model"))
        changes = values.pop("config", {})
        config = {**spec.config, **changes}
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][: config["num_hidden_layers"]]
        model = ModelSpec(name=spec.name, config=config)
        seq_len = values.pop("seq_len")
        budget, expected = values.pop("budget_bytes", None), values.pop("expected", "ok")
        yield {
            "key": key,
            "model": model,
            "seq_len": seq_len,
            "point": Point.model_validate(values),
            "budget_bytes": budget,
            "expected": expected,
        }


def _done(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {json.loads(line)["key"] for line in path.read_text().splitlines() if line.strip()}


def _spec(item: dict[str, Any], number: int, folder: Path, torch_adam: bool) -> TrialSpec:
    work = folder / f"trial-{number}"
    work.mkdir()
    return TrialSpec(
        trial_id=f"memory-{number}",
        model=item["model"],
        point=item["point"],
        seq_len=item["seq_len"],
        budget_bytes=item["budget_bytes"],
        outside_allocator_bytes=outside_allocator_bytes(Hardware(), item["point"]),
        torch_adam=torch_adam,
        warmup_steps=1,
        min_timed_steps=1,
        max_timed_steps=1,
        log_path=str(folder / f"trial-{number}.log"),
        work_dir=str(work),
    )


if __name__ == "__main__":
    main()
