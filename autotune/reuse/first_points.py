"""The good points of similar studies, rescaled to a new one, for the front of its queue.

Of a fast point everything is kept but what memory and the global batch decide: the micro batch, the share of
checkpointed layers and the accumulation. Of the candidates that keep it, and are predicted to fit, those
come first that the studies' own trials make the fastest (`source_speed`); where they are too few to say, the
largest micro batch at the share nearest to the fast point's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

from autotune.reuse.observations import speed_of
from autotune.reuse.profile import Profile
from autotune.reuse.similar import Similar
from autotune.reuse.source_speed import believed_speed
from autotune.winner.ranking import ranking
from trials.wire import Point

# So many points are worth a measurement before the search goes its own way.
MOST_POINTS = 3
# Of each study the best so many are looked at.
PER_STUDY = 4
# Knobs in which the nearest possible configuration may differ from the one that was fast.
MOST_CHANGED = 2

_SCALED = ("micro_batch_size", "gradient_accumulation_steps", "checkpoint_fraction")
_KEPT = tuple(name for name in Point.model_fields if name not in _SCALED)
_ORDERED = ("lora_rank", "zero_bucket_elements")

Required = Callable[[Point], int | None]
Speed = Callable[[Point], float]


@dataclass(frozen=True)
class FirstPoint:
    """A point worth measuring first.

    Attributes:
        point: one of the candidates.
        expected: its speed by what the studies measured; only its ratio to another one's means anything.
        study: where it comes from.
        trust: in that study.
    """

    point: Point
    expected: float
    study: str
    trust: float


def first_points(
    similar: Sequence[Similar],
    candidates: Sequence[Point],
    target: Profile,
    required_bytes: Required,
    *,
    speed: Speed | None = None,
    most: int = MOST_POINTS,
) -> tuple[FirstPoint, ...]:
    """Good points of similar studies among the candidates, the most promising first, each once.

    Args:
        similar: the studies.
        candidates: what may be launched now: neither measured nor known not to fit.
        target: what is about to be tuned.
        required_bytes: device memory that a candidate is predicted to need; None where nothing is predicted.
        speed: what a candidate's speed is believed to be, given what the studies measured; None: by
            `source_speed`.
        most: so many at most.
    """
    groups = _groups(candidates)
    speed = speed or believed_speed(similar, target)
    found: dict[Point, FirstPoint] = {}
    for one in sorted(similar, key=lambda one: -one.trust):
        fast = ranking(one.records, budget_bytes=one.profile.budget_bytes)
        for record in fast[:PER_STUDY]:
            kept = _nearest(tuple(getattr(record.point, name) for name in _KEPT), groups)
            if kept is None:
                continue
            needs = {member: required_bytes(member) for member in groups[kept]}
            share = (speed_of(record) or 0.0) / (speed_of(fast[0]) or 1.0)
            if all(need is None for need in needs.values()):
                members = _as_much_memory(groups[kept], record.point, one.profile, target)
            else:
                # Beside points that are predicted, one that is not is a risk not worth taking.
                members = [
                    member
                    for member, need in needs.items()
                    if need is not None and need <= target.budget_bytes
                ]
                members = members if speed is not None else _largest(members, record.point)
            for member in members:
                found.setdefault(member, FirstPoint(member, share, one.study, one.trust))
    if speed is None or not found:
        return tuple(sorted(found.values(), key=lambda first: -first.expected * first.trust)[:most])
    believed = [replace(first, expected=speed(point)) for point, first in found.items()]
    return tuple(sorted(believed, key=lambda first: -first.expected)[:most])


def _as_much_memory(members: Sequence[Point], point: Point, source: Profile, target: Profile) -> list[Point]:
    """Without predictions: what takes no more activation memory, of the budget, than the point took there."""
    room = target.budget_bytes / source.budget_bytes * source.activation_size / target.activation_size
    most = point.micro_batch_size * max(room, 1.0 / point.micro_batch_size)
    share = _nearest_share(members, point)
    return [
        member
        for member in members
        if member.micro_batch_size <= most and member.checkpoint_fraction >= share
    ]


def _largest(members: Sequence[Point], point: Point) -> list[Point]:
    """The largest micro batch at the share of checkpointed layers nearest to the point's."""
    share = _nearest_share(members, point)
    alike = [member for member in members if member.checkpoint_fraction == share]
    return [max(alike, key=lambda member: member.micro_batch_size)] if alike else []


def _nearest_share(members: Sequence[Point], point: Point) -> float:
    shares = {member.checkpoint_fraction for member in members}
    return min(shares, key=lambda share: abs(share - point.checkpoint_fraction), default=0.0)


def _groups(candidates: Sequence[Point]) -> dict[tuple[object, ...], list[Point]]:
    """The candidates by what is kept."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in candidates:
        groups.setdefault(tuple(getattr(point, name) for name in _KEPT), []).append(point)
    return groups


def _nearest(
    wanted: tuple[object, ...], groups: dict[tuple[object, ...], list[Point]]
) -> tuple[object, ...] | None:
    """The possible combination that differs in fewest knobs; None where it would be another configuration."""

    def distance(kept: tuple[object, ...]) -> tuple[int, float]:
        changed = [
            (name, ours, theirs)
            for name, ours, theirs in zip(_KEPT, kept, wanted, strict=True)
            if ours != theirs
        ]
        far = sum(
            abs(log(max(ours, 1) / max(theirs, 1)))
            for name, ours, theirs in changed
            if name in _ORDERED and isinstance(ours, int) and isinstance(theirs, int)
        )
        return len(changed), far

    if wanted in groups or not groups:
        return wanted if groups else None
    best = min(groups, key=distance)
    return best if distance(best)[0] <= MOST_CHANGED else None
