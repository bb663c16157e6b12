"""Which predicted configurations to measure first, before the sampler has anything to learn from.

Without predictions a study begins where memory is least, to have something that works. With them it begins
where the speed is likely best: a rough physical estimate ranks what fits, and since that estimate is least
sure of what recomputation costs against what its memory buys, the second trial is the best with another
share of checkpointed layers. Two trials near the top are a better beginning for the sampler than spread
ones, and what is clearly slower is then stopped early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trials.wire import Point

if TYPE_CHECKING:
    from autotune.planning.outlook import Outlook

FIRST_TRIALS = 2
# The first trials are to work whatever the machine adds.
COMFORTABLE_SHARE = 0.95


def promising_point(outlooks: Sequence[Outlook], budget_bytes: int, tried: Sequence[Point]) -> Point | None:
    """The point to measure next, while fewer than `FIRST_TRIALS` have been measured.

    Args:
        outlooks: what may be launched, with rough speeds.
        budget_bytes: device memory of one process.
        tried: what the study has measured of this method, in order.

    Returns:
        The fastest estimated of those that fit with room to spare; None where there is none.
    """
    most = COMFORTABLE_SHARE * budget_bytes
    comfortable = [
        outlook
        for outlook in outlooks
        if outlook.fits and outlook.prediction.confirmed_required_device_bytes <= most
    ]
    if not comfortable:
        return None
    ranked = sorted(comfortable, key=_rank)
    for differs in (_recomputes, _partitions) if tried else ():
        others = [outlook.point for outlook in ranked if differs(outlook.point) != differs(tried[0])]
        if others:
            return others[0]
    return ranked[0].point


def least_point(outlooks: Sequence[Outlook]) -> Point | None:
    """The point that is predicted to need the least device memory; None where nothing is predicted."""
    if not outlooks:
        return None
    return min(outlooks, key=lambda outlook: outlook.prediction.required_device_bytes).point


def _rank(outlook: Outlook) -> tuple[float, int, bool, float, int]:
    """Fast first; among equals the plainest, which has the least that could slow it down."""
    point = outlook.point
    return (
        -(outlook.tokens_per_second or 0.0),
        point.zero_stage,
        point.offload != "none",
        point.checkpoint_fraction,
        outlook.prediction.required_device_bytes,
    )


def _recomputes(point: Point) -> object:
    return point.checkpoint_fraction


def _partitions(point: Point) -> object:
    return point.zero_stage, point.offload
