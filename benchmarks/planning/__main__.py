"""`python -m benchmarks.planning`: times an estimate and plans of whole spaces; nothing kept, then kept."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "planning.md"
MODELS = ("llama2-7b", "qwen2.5-1.5b")
ESTIMATE = (
    "estimate --model llama2-7b --method lora --lora-rank 16 --micro-batch-size 4 --seq-len 1024 "
    "--checkpoint-fraction 1 --zero-stage 0 --precision bf16 --json"
)
PLAN = "plan --model {model} --method any --gpu-budget {budget} --json"


@dataclass(frozen=True)
class Timing:
    """One command's run.

    Attributes:
        what: the command, and whether anything was kept.
        wall_seconds: until it ended.
        cpu_seconds: of it and the processes it started.
        traces: kept afterwards.
        points: distinct points, of a plan.
        output: what it printed.
    """

    what: str
    wall_seconds: float
    cpu_seconds: float
    traces: int
    points: int | None
    output: str


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--budget", default="24GB")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    timings = []
    commands = [ESTIMATE, *(PLAN.format(model=model, budget=arguments.budget) for model in arguments.models)]
    for command in commands:
        with tempfile.TemporaryDirectory() as folder:
            for state in ("nothing kept", "kept"):
                timings.append(run(command, state, Path(folder)))
                print(line(timings[-1]), flush=True)
    text = report(timings)
    arguments.output.write_text(text)
    print(text)


def run(command: str, state: str, folder: Path) -> Timing:
    """Run `autotune` with a cache of its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "autotune", *command.split()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = re.search(r"([\d,]+) distinct points", ended.stderr)
    points = int(found.group(1).replace(",", "")) if found else None
    traces = len(list(folder.rglob("*.npz")))
    json.loads(ended.stdout)
    return Timing(f"`autotune {command}`, {state}", seconds, cpu, traces, points, ended.stdout)


def line(timing: Timing) -> str:
    """A row of the table."""
    points = "" if timing.points is None else f"{timing.points:,}"
    return (
        f"| {timing.what} | {points} | {timing.traces} | {timing.wall_seconds:.1f} | "
        f"{timing.cpu_seconds:.1f} |"
    )


def report(timings: list[Timing]) -> str:
    """The results as Markdown."""
    return "\n".join(
        [
            "# How long predictions take",
            "",
            f"`make bench-plan`, on {os.cpu_count()} processors. Processor seconds count all processes;",
            "beside other work on the same machine the wall seconds are longer.",
            "",
            "| command | points | traces kept | wall s | processor s |",
            "| --- | ---: | ---: | ---: | ---: |",
            *map(line, timings),
            "",
        ]
    )


if __name__ == "__main__":
    main()
