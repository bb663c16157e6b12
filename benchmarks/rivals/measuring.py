"""Trials of ours: the recipe's tries, and the measurement that every winner gets alike."""

from __future__ import annotations

from benchmarks.rivals.contender import Job
from trials.wire import Point, TrialResult, TrialSpec

MEASURE_TIMEOUT_SECONDS = 120.0
# Steps of a small model vary by several percent: long enough for an interval that tells winners apart.
MEASURE_SECONDS = 6.0
TARGET_SPREAD = 0.005
MIN_TIMED_STEPS = 3


def run_point(job: Job, point: Point, trial_id: str, timeout_seconds: float) -> TrialResult:
    """One trial of a point in a process of its own, under the budget.

    Args:
        job: the case, the machine and the running process.
        point: what to run.
        trial_id: names its files; unique in the job's folder.
        timeout_seconds: the trial is killed after this long.
    """
    work = job.folder / f"work-{trial_id}"
    work.mkdir()
    spec = TrialSpec(
        trial_id=trial_id,
        model=job.case.spec(),
        point=point,
        seq_len=job.setting.seq_len,
        device=job.setting.device,
        budget_bytes=job.setting.budget_bytes,
        outside_allocator_bytes=job.outside.bytes_for(point),
        torch_adam=job.machine.torch_adam,
        min_timed_steps=MIN_TIMED_STEPS,
        measure_seconds=MEASURE_SECONDS,
        target_spread=TARGET_SPREAD,
        log_path=str(job.folder / f"{trial_id}.log"),
        work_dir=str(work),
    )
    return job.runner.run(spec, timeout_seconds=timeout_seconds)
