"""The usual recipe: every layer checkpointed, the largest micro batch that fits by doubling and halving."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.rivals.contender import Found, Job
from benchmarks.rivals.measuring import run_point
from trials.wire import Outcome, TrialResult

FIRST_MICRO_BATCH = 4


def largest_that_fits(fits: Callable[[int], bool], first: int, most: int) -> int | None:
    """Double from the first size while it fits; where the first does not, halve until one does.

    Args:
        fits: asked at most once for each size.
        first: where to begin; no more than `most`.
        most: no size above it is asked for.

    Returns:
        The last size that fitted, or None where 1 does not.
    """
    size = first
    if not fits(size):
        while size > 1:
            size //= 2
            if fits(size):
                return size
        return None
    while 2 * size <= most and fits(2 * size):
        size *= 2
    return size


def run_recipe(job: Job) -> Found:
    """Try micro batches in trials of ours, in ZeRO-0 with every layer checkpointed."""
    begun = time.monotonic()
    results: dict[int, TrialResult] = {}
    setting = job.setting

    def spent() -> float:
        return job.runner_start_seconds + time.monotonic() - begun

    def fits(micro_batch_size: int) -> bool:
        point = setting.point(job.case, micro_batch_size, checkpoint_fraction=1.0)
        left = job.limit_seconds - spent()
        if left <= 0:
            raise TimeoutError
        result = run_point(job, point, f"recipe-{micro_batch_size}", left)
        if result.outcome is Outcome.TIMEOUT:
            raise TimeoutError
        results[micro_batch_size] = result
        return result.outcome is Outcome.OK

    cut = False
    try:
        chosen = largest_that_fits(fits, min(FIRST_MICRO_BATCH, setting.global_batch), setting.global_batch)
    except TimeoutError:
        cut = True
        good = [size for size, result in results.items() if result.outcome is Outcome.OK]
        chosen = max(good, default=None)
    odd = [
        f"micro batch {size}: {result.outcome}, {result.message}"
        for size, result in results.items()
        if result.outcome not in (Outcome.OK, Outcome.OOM)
    ]
    return Found(
        status="cut" if cut else ("failed" if chosen is None else "finished"),
        wall_seconds=spent(),
        point=setting.point(job.case, chosen, checkpoint_fraction=1.0) if chosen else None,
        own_tokens_per_second=results[chosen].tokens_per_second if chosen else None,
        tried=len(results),
        ooms=sum(result.outcome is Outcome.OOM for result in results.values()),
        note="; ".join(odd) or ("" if chosen else "no micro batch fits"),
        details={"outcomes": {str(size): str(result.outcome) for size, result in results.items()}},
    )
