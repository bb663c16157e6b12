"""`autotune run` as a contender."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

import search_spaces
from benchmarks.rivals.cases import Case
from benchmarks.rivals.contender import Found, Job
from benchmarks.rivals.processes import Ended, run_limited
from trials.wire import Point

# Confirming the winner comes after the search, and counts: the search is told to end this much earlier.
CONFIRMATION_SECONDS = 45.0
SHORTEST_SEARCH_SECONDS = 20.0


def run_autotune(job: Job) -> Found:
    """The whole job on the shipped space, with the quality knobs of the other contenders."""
    return _run(job, {})


def run_autotune_same_kernels(job: Job) -> Found:
    """The same without the kernels that no other contender uses."""
    return _run(job, {"liger_kernel": False})


def space_of(case: Case, changes: dict[str, Any]) -> dict[str, Any]:
    """The shipped space of the case's method, with rank and optimizer as every contender has them."""
    path = Path(search_spaces.__file__).parent / f"{case.method}.yaml"
    space: dict[str, Any] = yaml.safe_load(path.read_text())
    space["optimizer"] = "adamw"
    if case.lora_rank:
        space["lora_rank"] = case.lora_rank
    return space | changes


def _run(job: Job, changes: dict[str, Any]) -> Found:
    space = job.folder / "space.yaml"
    space.write_text(yaml.safe_dump(space_of(job.case, changes)))
    search_seconds = max(SHORTEST_SEARCH_SECONDS, job.limit_seconds - CONFIRMATION_SECONDS)
    command = [sys.executable, "-m", "autotune", "run", "--json"]
    command += ["--model", job.case.model, "--method", job.case.method, "--space", str(space)]
    command += ["--gpu-budget", str(job.setting.budget_bytes), "--seq-len", str(job.setting.seq_len)]
    command += ["--global-batch", str(job.setting.global_batch), "--device", job.setting.device]
    command += ["--timeout", f"{search_seconds:.0f}s", "--study", "rivals", "--reuse", "off"]
    command += [
        "--storage",
        f"sqlite:///{job.folder / 'study.db'}",
        "--export-dir",
        str(job.folder / "winner"),
    ]
    ended = run_limited(
        command,
        folder=job.folder,
        environment=job.environment(os.environ),
        limit_seconds=job.limit_seconds,
    )
    return found_by_autotune(ended)


def found_by_autotune(ended: Ended) -> Found:
    """The result from what `autotune run --json` printed."""
    try:
        answer = json.loads(ended.stdout.read_text())
    except json.JSONDecodeError:
        return Found(
            status="cut" if ended.cut else "failed",
            wall_seconds=ended.wall_seconds,
            note=f"no result: {ended.last_words()}",
        )
    winner = answer["winner"]
    counts = answer["trials"]
    note = "" if winner is None or winner["confirmed"] else "the winner is not confirmed"
    return Found(
        status="cut" if ended.cut else ("failed" if winner is None else "finished"),
        wall_seconds=ended.wall_seconds,
        point=Point.model_validate(winner["point"]) if winner else None,
        own_tokens_per_second=winner["tokens_per_second"] if winner else None,
        tried=sum(counts.values()),
        ooms=counts["oom"],
        note=note if winner else "nothing fits",
        details={"trials": counts, "skipped": answer["skipped"]},
    )
