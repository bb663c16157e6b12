"""Trainings and studies to learn from, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from autotune.models import resolve_model
from autotune.reuse import Profile, Similar, profile_of
from autotune.study import Record, StudyInputs
from autotune.study.measured_on import MeasuredOn
from autotune.tuning.task import model_digest
from trials.wire import Outcome, Phase, Point, TrialResult

GIB = 2**30
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERSIONS = {"torch": "2.11.0+cu130", "transformers": "5.17.0", "deepspeed": "0.19.8", "peft": "0.21.2"}


def inputs_of(model: str = "qwen2.5-1.5b", **values: Any) -> StudyInputs:
    """A LoRA tuning on an H200 in 24 GiB, unless told otherwise."""
    usual: dict[str, Any] = {
        "model": model,
        "model_digest": model_digest(resolve_model(model)),
        "method": "lora",
        "seq_len": 1024,
        "global_batch": 32,
        "budget_bytes": 24 * GIB,
        "device": "cuda",
        "gpu_name": "NVIDIA H200",
        "space_name": "lora",
        "space_digest": "0",
    }
    return StudyInputs(**(usual | values))


def profile(
    model: str = "qwen2.5-1.5b", versions: Mapping[str, str] = VERSIONS, cpus: int | None = 32, **values: Any
) -> Profile:
    """Its profile."""
    inputs = inputs_of(model, **values)
    machine = MeasuredOn(gpu_name=inputs.gpu_name, host_cpus=cpus, versions=dict(versions))
    return profile_of(inputs, resolve_model(model), machine)


def point(micro_batch: int, share: float = 0.0, **values: Any) -> Point:
    """A LoRA point that keeps a global batch of 32 as well as it can."""
    usual = {"gradient_accumulation_steps": max(1, round(32 / micro_batch)), "lora_rank": 16}
    return Point(micro_batch_size=micro_batch, checkpoint_fraction=share, **(usual | values))


def speed(point: Point) -> float:
    """A hundred microseconds a token and half as much for recomputing; a tenth of a second a micro batch."""
    tokens = point.micro_batch_size * 1024
    seconds = 1e-4 * (1 + 0.5 * point.checkpoint_fraction) + 0.1 / tokens
    return 1 / (seconds * (1.25 if point.zero_stage == 3 else 1.0))


def need_bytes(point: Point) -> int:
    """Four GiB, and two for each sequence whose layers are all kept."""
    kept = 2 * (1 - 0.8 * point.checkpoint_fraction)
    return round((4 + kept * point.micro_batch_size) * GIB)


def record(number: int, point: Point, tokens_per_second: float | None) -> Record:
    """A trial; without a speed it ran out of memory."""
    ok = tokens_per_second is not None
    result = TrialResult(
        trial_id=str(number),
        outcome=Outcome.OK if ok else Outcome.OOM,
        phase=Phase.LATER_STEP if ok else Phase.BACKWARD,
        tokens_per_second=tokens_per_second,
        required_device_bytes=need_bytes(point) if ok else None,
    )
    return Record(number, point, result, None, NOW, NOW)


def similar(points: Iterable[Point], source: Profile | None = None, trust: float = 0.8) -> Similar:
    """A study that measured these points."""
    records = tuple(record(number, each, speed(each)) for number, each in enumerate(points))
    return Similar("source", trust, "alike", source or profile(), records)


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
SPACE = tuple(point(size, share, zero_stage=stage) for stage in (0, 3) for share in SHARES for size in SIZES)
