"""The Pareto front of memory and throughput, which is the best throughput for each budget too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.winner.ranking import tokens_per_second

if TYPE_CHECKING:
    from autotune.study import Record

# What GPUs are sold with, in GiB.
CARD_GIB = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 288)
GIB = 2**30


@dataclass(frozen=True)
class Corner:
    """From this budget on, this configuration is the best that was measured.

    Attributes:
        budget_bytes: what it needs.
        tokens_per_second: what it does.
        record: its trial.
    """

    budget_bytes: int
    tokens_per_second: float
    record: Record


def front(records: Iterable[Record]) -> tuple[Corner, ...]:
    """The records that no other beats in both memory and throughput, from the smallest on.

    Args:
        records: those that ran to their end and say what they need count.
    """
    able = [
        Corner(r.result.required_device_bytes, tokens_per_second(r), r)
        for r in records
        if r.result and r.result.required_device_bytes is not None and tokens_per_second(r) > 0
    ]
    kept: list[Corner] = []
    for corner in sorted(able, key=lambda one: (one.budget_bytes, -one.tokens_per_second)):
        if not kept or corner.tokens_per_second > kept[-1].tokens_per_second:
            kept.append(corner)
    return tuple(kept)


def best_at(corners: Sequence[Corner], budget_bytes: int) -> Corner | None:
    """The best configuration for a budget; None where the smallest needs more."""
    within = [corner for corner in corners if corner.budget_bytes <= budget_bytes]
    return within[-1] if within else None


def card_budgets(corners: Sequence[Corner], budget_bytes: int) -> list[tuple[int, Corner]]:
    """The sizes of cards, in bytes, that the measurements say something of, with the best for each."""
    sizes = sorted({*(gib * GIB for gib in CARD_GIB if gib * GIB < budget_bytes), budget_bytes})
    found = [(size, best_at(corners, size)) for size in sizes]
    return [(size, corner) for size, corner in found if corner is not None]
