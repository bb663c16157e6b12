"""When a trial is clearly slower and may stop early, without hiding what quality costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from autotune.winner.choice import SAME_SHARE
from trials.wire import Outcome, Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Record

CLEARLY_SLOWER = 0.9


def stop_below(point: Point, records: Iterable[Record]) -> float | None:
    """The speed under which a trial of this point need not be measured to the end.

    A trial is worth its time when it may become the fastest of all, or the fastest with one of its quality
    knobs' values, which is a line of the price list. So the bar is the lowest of those bests, not the overall
    one: the best LoRA point must not stop every full fine-tuning before the list can say what it would cost.

    Args:
        point: the configuration about to run.
        records: the study so far.

    Returns:
        Tokens per second, or None where one of the point's values has no good measurement yet.
    """
    bests = _bests(point, records)
    return None if bests is None else CLEARLY_SLOWER * min(_speed(best) for best in bests)


def decided_below(point: Point, records: Iterable[Record]) -> float | None:
    """The speed that is surely slower: a trial whose interval lies below it need not become more precise.

    Args:
        point: the configuration about to run.
        records: the study so far.

    Returns:
        Tokens per second, below the interval of the best with each of the point's values and too far for a
        tie; None where one of the values has no good measurement yet.
    """
    bests = _bests(point, records)
    if bests is None:
        return None
    return min(min(SAME_SHARE * _speed(best), best.tokens_per_second_low or math.inf) for best in bests)


def _bests(point: Point, records: Iterable[Record]) -> list[TrialResult] | None:
    """The fastest trial with each of the point's values; None where there is none with one of them."""
    best: dict[tuple[str, Any], TrialResult] = {}
    for record in records:
        result = record.result
        if result is None or result.outcome is not Outcome.OK or result.tokens_per_second is None:
            continue
        for value in quality_values(record.point):
            if value not in best or _speed(result) > _speed(best[value]):
                best[value] = result
    found = [best[value] for value in quality_values(point) if value in best]
    return found if len(found) == len(quality_values(point)) else None


def _speed(result: TrialResult) -> float:
    return result.tokens_per_second or 0.0


def quality_values(point: Point) -> tuple[tuple[str, Any], ...]:
    """The point's values of the knobs that change what is learned."""
    return (
        ("method", point.method),
        ("lora_rank", point.lora_rank),
        ("quantization", point.quantization),
        ("precision", point.precision),
        ("optimizer", point.optimizer),
    )
