"""Which points a memory failure rules out without a trial."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.study.record import Record
from trials.wire import Outcome, Phase, Point

MEMORY_OUTCOMES = (Outcome.OOM, Outcome.HOST_OOM)
# Neither batches nor activations matter in these.
BATCHLESS_PHASES = (Phase.LOAD, Phase.START, Phase.SAVING)
# What must be equal: how memory compares across different values of these is not known beforehand.
EQUAL_FIELDS = (
    "precision",
    "zero_stage",
    "offload",
    "quantization",
    "optimizer",
    "attention",
    "liger_kernel",
)


def is_dominated(point: Point, failures: Sequence[Record]) -> bool:
    """Whether some trial ran out of memory with a configuration that needs at most as much as this point.

    Records of other outcomes, and of trials that still run, are passed over.
    """
    return any(
        record.result is not None
        and record.result.outcome in MEMORY_OUTCOMES
        and needs_at_least(point, record.point, failed_in=record.result.phase)
        for record in failures
    )


def needs_at_least(point: Point, failed: Point, *, failed_in: Phase) -> bool:
    """Whether a point needs at least as much memory as another where that one failed, device and host alike.

    Args:
        point: the one in question.
        failed: the one that ran out of memory.
        failed_in: the phase in which it did. Load and start come before the first batch and the first
            activation, and saving has none: the micro batch, the accumulation and the checkpointed share do
            not matter to them; the last does not matter to an evaluation pass either.
    """
    if any(getattr(point, name) != getattr(failed, name) for name in EQUAL_FIELDS):
        return False
    # Full fine-tuning is not a LoRA of some rank.
    if (point.lora_rank == 0) != (failed.lora_rank == 0) or point.lora_rank < failed.lora_rank:
        return False
    if not _bucket_at_least(point.zero_bucket_elements, failed.zero_bucket_elements):
        return False
    if failed_in in BATCHLESS_PHASES:
        return True
    return (
        point.micro_batch_size >= failed.micro_batch_size
        and (failed_in is Phase.EVALUATION or point.checkpoint_fraction <= failed.checkpoint_fraction)
        # Accumulated gradients wait in memory during the next micro batch; how often does not matter.
        and (point.gradient_accumulation_steps > 1) >= (failed.gradient_accumulation_steps > 1)
    )


def _bucket_at_least(bucket: int | None, failed: int | None) -> bool:
    # By the default rule buckets grow with the trainable parameters; a number cannot be compared with it.
    if bucket is None or failed is None:
        return bucket is failed
    return bucket >= failed
