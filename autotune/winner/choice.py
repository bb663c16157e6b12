"""The winner: the fastest, or what trains better where the clock cannot tell them apart.

Two measurements are the same when the 95 % intervals of their median throughput overlap, or when the medians
are within 1 % of each other: less does not repeat from one process to the next, however narrow the intervals
within each. A measurement so noisy that its interval reaches the fastest from afar is no tie: never more than
10 % of the fastest's throughput is given up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from autotune.winner.ranking import M, Measured, ranking, tokens_per_second
from trials.wire import Point

SAME_SHARE: Final = 0.99
LOWEST_SHARE: Final = 0.90

# Smaller is better; 8-bit state trains alike whether it is paged or not.
QUANTIZATION_COST: Final[dict[str, int]] = {"none": 0, "int8": 1, "nf4": 2}
OPTIMIZER_COST: Final[dict[str, int]] = {"adamw": 0, "adamw8bit": 1, "paged_adamw8bit": 1}
# So many of the values of `given_up` are about what is learned.
_LEARNED: Final = 4
PRECISION_COST: Final[dict[str, int]] = {"fp32": 0, "bf16": 1, "fp16": 2}


def choose_winner(
    records: Iterable[M], exclude: Collection[Point] = (), *, budget_bytes: int | None = None
) -> M | None:
    """The record that wins, or None where nothing that ran well fits.

    Args:
        records: a study's records, in the order they were measured.
        exclude: points whose confirmation failed.
        budget_bytes: device memory of one process; None: whatever ran well fits.

    Returns:
        Among the fastest and those that the clock cannot tell from it, the one that gives up least. In this
        order: a higher rank (full fine-tuning counts as the highest); a base that is not quantised, then
        int8, then NF4; fp32 optimizer state, then 8-bit; fp32, then bf16, then fp16; more headroom; faster.
    """
    ranked = ranking(records, exclude, budget_bytes=budget_bytes)
    if not ranked:
        return None
    fastest = ranked[0]
    # The sort is stable, so what is equal in everything keeps its order: the faster first.
    return min((r for r in ranked if same_speed(r, fastest)), key=given_up)


def same_speed(record: Measured, fastest: Measured) -> bool:
    """Whether the clock cannot tell this record from the fastest one."""
    share = tokens_per_second(record) / tokens_per_second(fastest)
    if share >= SAME_SHARE:
        return True
    assert record.result is not None and fastest.result is not None
    high, low = record.result.tokens_per_second_high, fastest.result.tokens_per_second_low
    return share >= LOWEST_SHARE and high is not None and low is not None and high >= low


def overlapping(winner: M, records: Iterable[M], *, budget_bytes: int | None = None) -> list[M]:
    """The other records whose interval overlaps the winner's though they are no tie, fastest first.

    They differ by more than is ever given up for noise: 1 - `LOWEST_SHARE` of the faster one's throughput.
    """

    def overlaps(record: M) -> bool:
        slower, faster = sorted((record, winner), key=tokens_per_second)
        assert slower.result is not None and faster.result is not None
        high, low = slower.result.tokens_per_second_high, faster.result.tokens_per_second_low
        return (
            record.point != winner.point
            and not same_speed(slower, faster)
            and high is not None
            and low is not None
            and high >= low
        )

    return [record for record in ranking(records, budget_bytes=budget_bytes) if overlaps(record)]


def tied_with(winner: M, records: Iterable[M], *, budget_bytes: int | None = None) -> list[M]:
    """The other records that the clock cannot tell from the winner, fastest first."""

    def is_tied(record: M) -> bool:
        slower, faster = sorted((record, winner), key=tokens_per_second)
        return record.point != winner.point and same_speed(slower, faster)

    return [record for record in ranking(records, budget_bytes=budget_bytes) if is_tied(record)]


def trains_better(record: Measured, other: Measured) -> bool:
    """Whether it gives up less than the other of what is learned; headroom and speed do not count."""
    return given_up(record)[:_LEARNED] < given_up(other)[:_LEARNED]


def given_up(record: Measured) -> tuple[float, int, int, int, float]:
    """What a configuration gives up in what is learned, then in headroom: smaller is better."""
    point, result = record.point, record.result
    assert result is not None
    held = result.required_device_bytes if result.required_device_bytes is not None else result.device_bytes
    return (
        -math.inf if point.lora_rank == 0 else -float(point.lora_rank),
        QUANTIZATION_COST[point.quantization],
        OPTIMIZER_COST[point.optimizer],
        PRECISION_COST[point.precision],
        math.inf if held is None else float(held),
    )
