"""When a trial is clearly slower and may stop early, without hiding what quality costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trials.wire import Outcome, Point

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
    best: dict[tuple[str, Any], float] = {}
    for record in records:
        result = record.result
        if result is None or result.outcome is not Outcome.OK or result.tokens_per_second is None:
            continue
        for value in quality_values(record.point):
            best[value] = max(best.get(value, 0.0), result.tokens_per_second)
    bars = [best.get(value) for value in quality_values(point)]
    known = [bar for bar in bars if bar is not None]
    return CLEARLY_SLOWER * min(known) if len(known) == len(bars) else None


def quality_values(point: Point) -> tuple[tuple[str, Any], ...]:
    """The point's values of the knobs that change what is learned."""
    return (
        ("method", point.method),
        ("lora_rank", point.lora_rank),
        ("quantization", point.quantization),
        ("precision", point.precision),
        ("optimizer", point.optimizer),
    )
