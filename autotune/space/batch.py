"""Gradient accumulation from the global batch."""

from __future__ import annotations

SEARCHED_ACCUMULATION_STEPS = (1, 2, 4, 8, 16, 32)


def accumulation_steps(global_batch: int, micro_batch_size: int, gpus: int) -> int:
    """The accumulation that brings micro batch x accumulation x GPUs nearest to the global batch.

    Of two that are equally near, the smaller: no more tokens a step than asked for.

    Args:
        global_batch: sequences per optimizer step over all GPUs.
        micro_batch_size: sequences per GPU per forward.
        gpus: GPUs that train together.

    Returns:
        At least 1.
    """
    at_once = micro_batch_size * gpus
    below, rest = divmod(global_batch, at_once)
    return max(1, below + (2 * rest > at_once))


def misses_global_batch(global_batch: int, sequences: int, *, exact: bool) -> bool:
    """Whether so many sequences a step are too far from the global batch: over 10 %, or at all if exact."""
    off = abs(sequences - global_batch)
    return off > 0 if exact else 10 * off > global_batch
