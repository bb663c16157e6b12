"""Reads the results folder of DeepSpeed's autotuner: one folder an experiment.

Checked with deepspeed 0.19.8: `exp.json` and `ds_config.json` are there from the start of an experiment,
`metrics.json` from its end, and `stderr.log` with any word "error" in it makes it a failed one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from trials.ds_config import DEEPSPEED_BUCKET_ELEMENTS
from trials.wire import Strict

PROFILE = "profile_model_info"
OOM_SIGNS = ("out of memory", "can't allocate memory", "bad_alloc")


class Experiment(Strict):
    """One experiment of the tuner, the model profile included.

    `unfinished` has neither metrics nor an error: it was running when the tuner was ended, or died silently.
    """

    name: str
    status: Literal["ok", "oom", "failed", "unfinished"]
    zero_stage: Literal[0, 1, 2, 3]
    micro_batch_size: int
    gradient_accumulation_steps: int
    zero_bucket_elements: int | None = None
    samples_per_second: float | None = None
    reason: str = ""

    @property
    def sequences_per_step(self) -> int:
        """Of one optimizer step."""
        return self.micro_batch_size * self.gradient_accumulation_steps


def read_experiments(results: Path) -> list[Experiment]:
    """All experiments of a results folder, in the order they ran; none where the folder is not there."""
    started = [(path, _read(path)) for path in results.glob("*/exp.json")]
    ordered = sorted(started, key=lambda item: item[1]["exp_id"])
    return [_experiment(path.parent, exp) for path, exp in ordered]


def best_experiment(experiments: Sequence[Experiment], optimal: Path) -> Experiment | None:
    """The tuner's choice where it wrote one, else the fastest that ended well; None where none did."""
    good = [experiment for experiment in experiments if experiment.samples_per_second]
    if optimal.exists():
        about = _about(_read(optimal))
        chosen = [experiment for experiment in good if _key(experiment) == about]
        if chosen:
            return max(chosen, key=lambda experiment: experiment.samples_per_second or 0.0)
    return max(good, key=lambda experiment: experiment.samples_per_second or 0.0, default=None)


def _experiment(folder: Path, exp: dict[str, Any]) -> Experiment:
    stage, micro_batch, accumulation, bucket = _about(exp["ds_config"])
    metrics, stderr = folder / "metrics.json", folder / "stderr.log"
    words = stderr.read_text(errors="replace") if stderr.exists() else ""
    samples: float | None = None
    status, reason = "unfinished", ""
    errors = [line.strip() for line in words.splitlines() if "error" in line.lower()]
    if metrics.exists():
        status, samples = "ok", float(_read(metrics)["throughput"])
    elif (folder / "model_info.json").exists():
        status = "ok"
    elif errors:
        status = "oom" if any(sign in words.lower() for sign in OOM_SIGNS) else "failed"
        reason = errors[-1][:300]
    return Experiment.model_validate(
        {
            "name": exp["name"],
            "status": status,
            "zero_stage": stage,
            "micro_batch_size": micro_batch,
            "gradient_accumulation_steps": accumulation,
            "zero_bucket_elements": bucket,
            "samples_per_second": samples,
            "reason": reason,
        }
    )


def _about(config: dict[str, Any]) -> tuple[int, int, int, int | None]:
    """Stage, micro batch, accumulation and bucket of a DeepSpeed configuration."""
    zero = config.get("zero_optimization", {})
    stage = int(zero.get("stage", 0))
    bucket = int(zero.get("reduce_bucket_size", DEEPSPEED_BUCKET_ELEMENTS)) if stage else None
    return (
        stage,
        int(config["train_micro_batch_size_per_gpu"]),
        int(config.get("gradient_accumulation_steps", 1)),
        bucket,
    )


def _key(experiment: Experiment) -> tuple[int, int, int, int | None]:
    return (
        experiment.zero_stage,
        experiment.micro_batch_size,
        experiment.gradient_accumulation_steps,
        experiment.zero_bucket_elements,
    )


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values
