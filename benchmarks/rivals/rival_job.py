"""Hands a job to the training scripts of the rivals."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rivals.contender import Job
from benchmarks.rivals.training_job import TrainingJob


def write_job(job: Job) -> Path:
    """The job as a file in its folder."""
    path = job.folder / "job.json"
    training = TrainingJob(
        model=job.case.spec(),
        lora_rank=job.case.lora_rank,
        seq_len=job.setting.seq_len,
        global_batch=job.setting.global_batch,
        budget_bytes=job.setting.budget_bytes,
        outside_allocator_bytes=job.outside_bytes,
        device=job.setting.device,
    )
    path.write_text(training.model_dump_json())
    return path
