"""`autotune.json`: what won, what was measured, with what and on what."""

from __future__ import annotations

from typing import Any

from autotune.export.winner import Winner
from trials.wire import TrialResult

FORMAT_VERSION = 1

MEASUREMENTS = (
    "tokens_per_second",
    "tokens_per_second_low",
    "tokens_per_second_high",
    "step_seconds",
    "setup_seconds",
    "peak_allocated_bytes",
    "setup_peak_allocated_bytes",
    "peak_reserved_bytes",
    "device_bytes",
    "outside_allocator_bytes",
    "required_device_bytes",
    "required_verified",
    "host_peak_bytes",
    "trainable_parameters",
    "total_parameters",
    "tf32",
)


def winner_record(winner: Winner) -> dict[str, Any]:
    """The record as plain data, sizes in bytes and times in seconds; `measured` is of the run announced."""
    measured = winner.measured
    return {
        "format_version": FORMAT_VERSION,
        "study": winner.study,
        "created": winner.created,
        "command": winner.command,
        "method": winner.point.method,
        "point": winner.point.model_dump(mode="json"),
        "model": winner.model.model_dump(mode="json"),
        "weights_source": winner.weights_source,
        "load_weights": winner.load_weights,
        "seq_len": winner.seq_len,
        "global_batch": winner.global_batch,
        "tokens_per_step": tokens_per_step(winner),
        "gpus": winner.gpus,
        "device": winner.device,
        "gpu_budget_bytes": winner.gpu_budget_bytes,
        "lora_targets": winner.target_modules and list(winner.target_modules),
        "gpu": measured.gpu and measured.gpu.model_dump(mode="json"),
        "versions": dict(measured.versions),
        "measured": _measurements(measured),
        "confirmed": winner.confirmation is not None,
        "trial": winner.result.model_dump(mode="json"),
        "confirmation": winner.confirmation and winner.confirmation.model_dump(mode="json"),
    }


def tokens_per_step(winner: Winner) -> int:
    """Tokens of one optimizer step over all GPUs."""
    point = winner.point
    return point.micro_batch_size * point.gradient_accumulation_steps * winner.gpus * winner.seq_len


def _measurements(result: TrialResult) -> dict[str, Any]:
    dump = result.model_dump(mode="json")
    return {name: dump[name] for name in MEASUREMENTS}
