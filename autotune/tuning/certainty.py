"""How sure a search is of its best: what measuring further could gain, and which prices are still open."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autotune.tuning.stopping import quality_values
from trials.wire import Outcome, Point

if TYPE_CHECKING:
    from autotune.study import Record, Study
    from autotune.throughput import Remaining
    from autotune.throughput.advisor import Advisor

REMAINING_NOTE = "remaining"
# A price is worth a trial where it is at least this share of the best throughput.
LEAST_PRICED_SHARE = 0.25
# Of fewer measured points than this nobody believes that they are the best, whatever is computed.
LEAST_MEASURED = 4


def left_to_gain(
    advisor: Advisor, records: Sequence[Record], candidates: Sequence[Point], until: float
) -> Remaining | None:
    """What is left to gain in the candidates; None while nothing is measured.

    Args:
        advisor: of the points.
        records: trials that have ended.
        candidates: what may still be measured and may fit.
        until: the share by which one must be faster to count as beating the best.
    """
    from autotune.throughput.seen import seen_of

    seen = [seen_of(record.point, record.result) for record in records]
    return advisor.remaining(seen, candidates, until)


def is_settled(
    left: Remaining | None, records: Sequence[Record], until: float, least: int = LEAST_MEASURED
) -> bool:
    """Whether so little is left to gain that the search for the fastest is over.

    Args:
        left: what is left to gain.
        records: trials that have ended.
        until: the share of the best throughput below which it is little; 0: never.
        least: trials whose speed must be known.
    """
    measured = [r for r in records if r.result is not None and r.result.tokens_per_second is not None]
    if until <= 0 or left is None or len(measured) < min(least, len(measured) + left.points):
        return False
    return left.share < until


def is_guess(remaining: Remaining, measured: int) -> bool:
    """Whether what is left to gain comes from so few trials that its figures are not worth telling.

    Args:
        remaining: what is left to gain.
        measured: trials whose speed is known.
    """
    return remaining.points > 0 and measured < LEAST_MEASURED


def unpriced_point(
    advisor: Advisor,
    records: Sequence[Record],
    candidates: Sequence[Point],
    elsewhere: Collection[tuple[str, Any]] = (),
) -> Point | None:
    """The fastest believed candidate with a value of a quality knob that no good trial has shown yet.

    The search for the fastest passes those values by; but what a higher rank or full fine-tuning would cost
    is what the price list is for, and among equally fast ones that which gives up least wins.

    Args:
        advisor: of the points.
        records: trials that have ended.
        candidates: what may still be measured and may fit.
        elsewhere: values of quality knobs that another study of the same training has shown.

    Returns:
        None where every value is priced, or would be far slower than the best.
    """
    from autotune.throughput.seen import seen_of

    if not candidates:
        return None
    good = [r for r in records if r.result is not None and r.result.outcome is Outcome.OK]
    priced = {value for record in good for value in quality_values(record.point)}.union(elsewhere)
    open_points = [point for point in candidates if not priced.issuperset(quality_values(point))]
    if not open_points or not good:
        return None
    belief = advisor.belief([seen_of(record.point, record.result) for record in records], candidates)
    speeds = belief.tokens_per_second[belief.rows_of(open_points)]
    best = max(record.result.tokens_per_second or 0.0 for record in good if record.result is not None)
    fastest = int(speeds.argmax())
    return open_points[fastest] if speeds[fastest] >= LEAST_PRICED_SHARE * best else None


def keep_remaining(study: Study, remaining: Remaining | None) -> None:
    """Keep in the study how sure its search was when it ended."""
    note = None if remaining is None else asdict(remaining)
    if study.note(REMAINING_NOTE) != note:
        study.set_note(REMAINING_NOTE, note)


def kept_remaining(study: Study) -> Remaining | None:
    """How sure the study's last search was; None where it does not say."""
    note: Any = study.note(REMAINING_NOTE)
    if note is None:
        return None
    from autotune.throughput import Remaining

    return Remaining(**note)
