"""What one step from the winner does: the trials that differ from it in a single knob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.display.words import memory_of
from autotune.space.fields import point_fields
from autotune.winner.ranking import tokens_per_second
from trials.wire import Outcome, Point

if TYPE_CHECKING:
    from autotune.study import Record


@dataclass(frozen=True)
class Step:
    """A trial one knob away from the winner's.

    Attributes:
        knob: the field that differs.
        before: the winner's value.
        after: the neighbour's.
        record: the neighbour's trial.
        speed_change: its throughput over the winner's, less one; None where it has none.
        memory_change_bytes: what it needs more; negative for less, None where that is not known.
    """

    knob: str
    before: Any
    after: Any
    record: Record
    speed_change: float | None
    memory_change_bytes: int | None


def steps_from(winner: Record, records: Sequence[Record], *, batch_is_searched: bool) -> list[Step]:
    """The winner's measured neighbours, knob by knob and value by value.

    Like is compared with like: the winner's figures are those of its trial, not of its longer run.

    Args:
        winner: its trial.
        records: the study's trials.
        batch_is_searched: whether accumulation is a knob; otherwise it follows from the micro batch.
    """
    fields = point_fields()
    found = []
    for record in records:
        knobs = differing_knobs(winner.point, record.point, batch_is_searched=batch_is_searched)
        if len(knobs) == 1:
            found.append(_step(knobs[0], winner, record))
    order = list(fields)
    return sorted(found, key=lambda step: (order.index(step.knob), fields[step.knob].order(step.after)))


def differing_knobs(first: Point, second: Point, *, batch_is_searched: bool) -> list[str]:
    """The knobs in which two points differ."""
    return [
        name
        for name in point_fields()
        if getattr(first, name) != getattr(second, name)
        and (batch_is_searched or name != "gradient_accumulation_steps")
    ]


def _step(knob: str, winner: Record, record: Record) -> Step:
    assert winner.result is not None and record.result is not None
    before, after = memory_of(winner.result), memory_of(record.result)
    fast, speed = tokens_per_second(winner), record.result.tokens_per_second
    ran = record.result.outcome in (Outcome.OK, Outcome.STOPPED)
    return Step(
        knob=knob,
        before=getattr(winner.point, knob),
        after=getattr(record.point, knob),
        record=record,
        speed_change=speed / fast - 1.0 if ran and speed and fast else None,
        memory_change_bytes=after - before if ran and after is not None and before is not None else None,
    )
