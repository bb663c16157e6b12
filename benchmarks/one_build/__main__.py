"""Measure the same points on one engine and in fresh processes: `python -m benchmarks.one_build`.

An engine is built and measures one point, then another, which at once is measured again in a process of its
own: so both ways of a point stand some seconds apart, and a host that is faster at times speaks for neither.
On a GPU the model and its sequences are long enough for the card to be what limits a step, not the host.
Writes one JSON line per measurement as it goes, so that a run that is cut short is not lost, and ends with
how far both ways agree and what a measured point cost beyond its timed steps.
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
from autotune.running import TrialRunner, inspect_machine
from autotune.sizes import parse_size
from benchmarks.json_rows import Row, append_row
from benchmarks.one_build.agreement import summary
from trials.wire import Device, ModelSpec, Point, TrialSpec

TRIAL_TIMEOUT_SECONDS = 240.0
# Enough for a CUDA context with its libraries on every card seen so far.
OUTSIDE_BYTES = 2500 << 20
BUILDS: dict[Device, tuple[dict[str, Any], ...]] = {
    "cpu": ({}, {"zero_stage": 3}, {"lora_rank": 8, "zero_stage": 2}),
    "cuda": ({"liger_kernel": True}, {"liger_kernel": True, "lora_rank": 16, "zero_stage": 2}),
}
# In an order in which every change goes both ways.
POINTS: dict[Device, tuple[dict[str, Any], ...]] = {
    "cpu": (
        {"micro_batch_size": 2},
        {"micro_batch_size": 8, "checkpoint_fraction": 0.5},
        {"micro_batch_size": 1, "gradient_accumulation_steps": 4, "checkpoint_fraction": 1.0},
        {"micro_batch_size": 4},
    ),
    "cuda": (
        {"micro_batch_size": 2},
        {"micro_batch_size": 8, "checkpoint_fraction": 1.0},
        {"micro_batch_size": 4, "checkpoint_fraction": 0.5},
    ),
}
# On a GPU these do not fit the budget: met once on an engine that has measured something, once alone.
TOO_LARGE: dict[Device, tuple[dict[str, Any], ...]] = {"cpu": (), "cuda": ({"micro_batch_size": 64},)}
ROUNDS = 2
MODELS: dict[Device, tuple[str, ...]] = {"cpu": ("tiny-llama", "tiny-qwen2"), "cuda": ("qwen2.5-1.5b",)}
SEQ_LEN: dict[Device, int] = {"cpu": 128, "cuda": 4096}
BUDGET_BYTES: dict[Device, int] = {"cpu": 2 << 30, "cuda": 64 << 30}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_build", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", action="append", help="a card's name; may be given several times")
    parser.add_argument("--seq-len", type=int, default=None)
    parser.add_argument("--budget", type=parse_size, default=None, help="device memory of a trial")
    parser.add_argument("--build", action="append", type=json.loads, help="Point fields as JSON; repeatable")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="how often each point is measured each way"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="start no further trial after this long")
    parser.add_argument("--output", type=Path, default=Path("one_build.jsonl"))
    arguments = parser.parse_args()
    device: Device = arguments.device
    bench = Bench(
        device,
        seq_len=arguments.seq_len or SEQ_LEN[device],
        budget_bytes=arguments.budget or BUDGET_BYTES[device],
        seconds=arguments.seconds,
        rounds=arguments.rounds,
    )
    models = arguments.model or MODELS[device]
    print(summary(bench.run(models, arguments.build or list(BUILDS[device]), arguments.output)))


def ways(points: list[Point], too_large: list[Point], rounds: int) -> Iterator[tuple[Point, bool]]:
    """What is measured one after another, and whether in a process that ends with it.

    After such a process the next point builds an engine, and the one after that is measured on it.

    Args:
        points: that fit.
        too_large: that do not.
        rounds: how often each point is measured each way.
    """
    for _ in range(rounds):
        for point, following in zip(points, points[1:] + points[:1], strict=True):
            yield point, False
            yield following, False
            yield following, True
    for point in too_large:
        yield points[0], False
        yield point, False
        yield point, True


class Bench:
    """The measurements, in time.

    Args:
        device: where trials run.
        seq_len: tokens per sequence.
        budget_bytes: device memory of a trial.
        seconds: no trial starts after this long.
        rounds: how often each point is measured each way.
    """

    def __init__(
        self, device: Device, *, seq_len: int, budget_bytes: int, seconds: float, rounds: int = ROUNDS
    ) -> None:
        self._device: Device = device
        self._seq_len = seq_len
        self._budget_bytes = budget_bytes
        self._until = time.monotonic() + seconds
        self._rounds = rounds
        self._rows: list[Row] = []

    def run(
        self, models: list[str] | tuple[str, ...], builds: list[dict[str, Any]], output: Path
    ) -> list[Row]:
        """Measure; the rows that were written."""
        machine = inspect_machine(self._device)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for name in models:
                model = resolve_model(name)
                kind = str(model.config.get("model_type"))
                with TrialRunner(self._device, model_type=kind, log_dir=folder) as runner:
                    ops = ("shared_memory_communication",) if self._device == "cpu" else ()
                    runner.prepare(ops if machine.host_compiler else (), print)
                    for build in builds:
                        points = [Point(**build, **changes) for changes in POINTS[self._device]]
                        too_large = [Point(**build, **changes) for changes in TOO_LARGE[self._device]]
                        for point, fresh in ways(points, too_large, self._rounds):
                            self._measure(runner, model, point, fresh, folder, output)
        return self._rows

    def _measure(
        self,
        runner: TrialRunner,
        model: ModelSpec,
        point: Point,
        fresh: bool,
        folder: Path,
        output: Path,
    ) -> None:
        if time.monotonic() > self._until:
            return
        number = len(self._rows) + 1
        work = folder / f"{number}"
        work.mkdir()
        spec = TrialSpec(
            trial_id=str(number),
            model=model,
            point=point,
            seq_len=self._seq_len,
            device=self._device,
            budget_bytes=self._budget_bytes,
            outside_allocator_bytes=OUTSIDE_BYTES if self._device == "cuda" else 0,
            # DeepSpeed's own Adam would have to be compiled first.
            torch_adam=True,
            log_path=str(work / "log"),
            work_dir=str(work),
        )
        begun = time.monotonic()
        result = runner.run(spec, timeout_seconds=TRIAL_TIMEOUT_SECONDS, fresh=fresh)
        wall = time.monotonic() - begun
        row = {
            "model": model.name,
            "seq_len": self._seq_len,
            "budget_bytes": self._budget_bytes,
            "point": point.model_dump(mode="json", exclude_defaults=True),
            "asked": "fresh" if fresh else "reused",
            "wall_seconds": wall,
            "overhead_seconds": wall - sum(result.step_seconds),
            "result": result.model_dump(mode="json", exclude={"ds_config", "trial_id", "wire_version"}),
        }
        append_row(output, self._rows, row)
        speed, peak = result.tokens_per_second or 0.0, result.peak_allocated_bytes or 0
        print(
            f"{number:3d} {result.build:6} {result.outcome:7} {speed:10,.0f} tok/s {peak >> 20:7,} MiB "
            f"{wall:6.2f} s  {row['point']} {result.message[:80]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
