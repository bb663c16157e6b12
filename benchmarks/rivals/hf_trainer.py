"""Transformers' Trainer with `auto_find_batch_size` as a contender."""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.rivals.contender import Found, Job, Status
from benchmarks.rivals.processes import run_limited
from benchmarks.rivals.rival_job import write_job

SCRIPT = Path(__file__).parent / "scripts" / "trainer_training.py"
# The first steps are slow (allocator, lazy kernels): timed from the third on, as trials are.
WARMUP_STEPS = 2
PROGRESS = "attempts.json"
# What accelerate says when not even one sequence fits.
EXHAUSTED = "No executable batch size found"


def run_auto_find(job: Job) -> Found:
    """Let the Trainer find its batch, starting at the global batch."""
    progress = job.folder / PROGRESS
    command = [sys.executable, "-u", str(SCRIPT), "--job", str(write_job(job)), "--progress", str(progress)]
    environment = job.environment(os.environ)
    if job.setting.device == "cuda":
        # With several in sight the Trainer would spread its batch over them.
        environment["CUDA_VISIBLE_DEVICES"] = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    ended = run_limited(command, folder=job.folder, environment=environment, limit_seconds=job.limit_seconds)
    seen = _progress(progress)
    attempts: list[dict[str, Any]] = seen["attempts"]
    batch, tokens_per_second = batch_found(attempts, job.setting.seq_len)
    status: Status = "cut" if ended.cut else "failed"
    note = ended.last_words()
    if seen["done"]:
        status, note = "finished", ""
        if batch != job.setting.global_batch:
            note = "its accumulation stays 1: its own figure is of a smaller global batch"
    return Found(
        status=status,
        wall_seconds=ended.wall_seconds,
        point=job.setting.point(job.case, batch) if batch else None,
        own_tokens_per_second=tokens_per_second,
        tried=len(attempts),
        ooms=failed_attempts(attempts, exhausted=not seen["done"] and EXHAUSTED in note),
        note=note,
        details={"batches": [attempt["batch"] for attempt in attempts]},
    )


def _progress(path: Path) -> dict[str, Any]:
    """What the script wrote; nothing where it did not get to its first attempt."""
    return dict(json.loads(path.read_text())) if path.exists() else {"attempts": [], "done": False}


def batch_found(attempts: list[dict[str, Any]], seq_len: int) -> tuple[int | None, float | None]:
    """The batch of the last attempt that got past its warm-up, and its tokens per second; else nothing."""
    if not attempts:
        return None, None
    timed = attempts[-1]["step_seconds"][WARMUP_STEPS:]
    if not timed:
        return None, None
    batch = int(attempts[-1]["batch"])
    return batch, batch * seq_len / statistics.median(timed)


def failed_attempts(attempts: list[dict[str, Any]], *, exhausted: bool) -> int:
    """Attempts that ended out of memory: each that was followed by another, and the last if none was left."""
    return len(attempts) if exhausted else max(0, len(attempts) - 1)
