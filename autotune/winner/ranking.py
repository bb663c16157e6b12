"""The measured configurations that train inside the budget, fastest first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from trials.wire import Outcome, Point, TrialResult


class Measured(Protocol):
    """A point with what its trial reported: what ranking needs to know of a study's record."""

    @property
    def point(self) -> Point: ...

    @property
    def result(self) -> TrialResult | None: ...


M = TypeVar("M", bound=Measured)


def tokens_per_second(record: Measured) -> float:
    """The measured throughput in tokens per second; 0.0 where there is none to compare."""
    result = record.result
    if result is None or result.outcome is not Outcome.OK or result.tokens_per_second is None:
        return 0.0
    return result.tokens_per_second if math.isfinite(result.tokens_per_second) else 0.0


def fits(record: Measured, budget_bytes: int | None) -> bool:
    """Whether the configuration needs no more device memory than the budget.

    A trial runs with its allocator capped at the budget, so one that ended well fits; a record without
    `required_device_bytes` is believed for that reason. The figure still decides where there is one: paged
    optimizer state is managed memory, which no cap on the allocator sees.
    """
    if budget_bytes is None or record.result is None:
        return True
    required = record.result.required_device_bytes
    return required is None or required <= budget_bytes


def ranking(
    records: Iterable[M], exclude: Collection[Point] = (), *, budget_bytes: int | None = None
) -> list[M]:
    """The records that could win, fastest first.

    Args:
        records: a study's records, in the order they were measured.
        exclude: points that may not win, for their confirmation failed.
        budget_bytes: device memory of one process; None: whatever ran well fits.

    Returns:
        The records whose trial ended `ok` with a throughput and inside the budget; equally fast ones in the
        order of `records`.
    """
    able = (r for r in records if tokens_per_second(r) > 0.0 and fits(r, budget_bytes))
    return sorted((r for r in able if r.point not in exclude), key=tokens_per_second, reverse=True)
