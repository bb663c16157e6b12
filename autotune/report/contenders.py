"""What else was near the winner, and why it did not win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.winner.choice import given_up
from autotune.winner.ranking import tokens_per_second

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.study import Record

NEAR_SHARE = 0.9
MOST_SHOWN = 6
# What `given_up` compares, in its order.
GIVEN_UP_WORDS = (
    "the winner trains more parameters",
    "the winner's base is quantised less",
    "the winner keeps its optimizer state in fp32",
    "the winner computes more exactly",
    "the winner needs less memory",
)


@dataclass(frozen=True)
class Contender:
    """A configuration that came close.

    Attributes:
        record: its trial, with its longer run's result where it has one.
        confirmed: whether it has one.
        tied: whether the clock cannot tell it from the winner.
        speed_change: its throughput over the winner's, less one.
        why: why it did not win.
    """

    record: Record
    confirmed: bool
    tied: bool
    speed_change: float
    why: str


def contenders(evidence: Evidence) -> list[Contender]:
    """The configurations within 10 % of the winner or faster, fastest first; not the winner itself.

    Args:
        evidence: with a winner, or the list is empty.
    """
    chosen = evidence.chosen
    if chosen is None or not evidence.ranked:
        return []
    confirmed = {record.point for record in evidence.confirmations}
    able = evidence.ranked
    winner = next((record for record in able if record.point == chosen.record.point), None)
    if winner is None:
        return []
    found = []
    for record in able:
        change = tokens_per_second(record) / tokens_per_second(winner) - 1.0
        if record.point == winner.point or change < NEAR_SHARE - 1.0:
            continue
        tied = record.point in evidence.ties
        why = _why(winner, record, change, tied=tied, confirmed=record.point in confirmed)
        found.append(Contender(record, record.point in confirmed, tied, change, why))
    return found[:MOST_SHOWN]


def _why(winner: Record, record: Record, change: float, *, tied: bool, confirmed: bool) -> str:
    if tied:
        pairs = zip(given_up(winner), given_up(record), GIVEN_UP_WORDS, strict=True)
        words = next((text for ours, theirs, text in pairs if ours < theirs), "")
        if words:
            return f"as fast within the noise; {words}"
    if change > 0 and not confirmed:
        return "faster in its short trial, by too little to be confirmed too"
    return f"{abs(change):.1%} {'faster' if change > 0 else 'slower'}"
