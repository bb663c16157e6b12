"""The good points of similar studies, rescaled to a new one, for the front of its queue.

Of a fast point everything is kept but what memory and the global batch decide. Two ways lead from one budget
to another, and which is faster differs: the micro batch becomes the largest that is predicted to fit, or it
stays (in tokens) and as few layers are recomputed as fit. Accumulation follows from the global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log

from autotune.reuse.observations import speed_of
from autotune.reuse.profile import Profile
from autotune.reuse.similar import Similar
from autotune.winner.ranking import ranking
from trials.wire import Point

# So many points are worth a measurement before the search goes its own way.
MOST_POINTS = 3
# Of each study the best so many are looked at.
PER_STUDY = 4
# Nearer to the budget than this a prediction may be wrong, and a first point is to work.
COMFORTABLE_SHARE = 0.97
# Knobs in which the nearest possible configuration may differ from the one that was fast.
MOST_CHANGED = 2

_SCALED = ("micro_batch_size", "gradient_accumulation_steps", "checkpoint_fraction")
_KEPT = tuple(name for name in Point.model_fields if name not in _SCALED)
_ORDERED = ("lora_rank", "zero_bucket_elements")

Required = Callable[[Point], int | None]


@dataclass(frozen=True)
class FirstPoint:
    """A point worth measuring first.

    Attributes:
        point: one of the candidates.
        expected: its speed as a share of the best of its study, by that study.
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
    most: int = MOST_POINTS,
) -> tuple[FirstPoint, ...]:
    """Good points of similar studies among the candidates, the most promising first, each once.

    Args:
        similar: the studies.
        candidates: what may be launched now: neither measured nor known not to fit.
        target: what is about to be tuned.
        required_bytes: device memory that a candidate is predicted to need; None where nothing is predicted.
        most: so many at most.
    """
    groups = _groups(candidates)
    if not groups:
        return ()
    found: list[FirstPoint] = []
    for one in sorted(similar, key=lambda one: -one.trust):
        fast = ranking(one.records, budget_bytes=one.profile.budget_bytes)
        for record in fast[:PER_STUDY]:
            expected = (speed_of(record) or 0.0) / (speed_of(fast[0]) or 1.0)
            for rank, point in enumerate(
                _rescaled(record.point, one.profile, target, groups, required_bytes)
            ):
                # Of the two ways to rescale neither is known to be better; the second comes after all firsts.
                found.append(FirstPoint(point, expected * (1.0 if rank == 0 else 0.98), one.study, one.trust))
    found.sort(key=lambda first: -first.expected * first.trust)
    distinct = {first.point: first for first in reversed(found)}
    return tuple(first for first in found if distinct[first.point] is first)[:most]


def _rescaled(
    point: Point,
    source: Profile,
    target: Profile,
    groups: dict[tuple[object, ...], list[Point]],
    required_bytes: Required,
) -> Iterator[Point]:
    kept = _nearest(tuple(getattr(point, name) for name in _KEPT), groups)
    if kept is None:
        return
    members = [p for p in groups[kept] if fits_comfortably(p, target.budget_bytes, required_bytes)]
    if not members:
        return
    tokens = point.micro_batch_size * source.seq_len
    share = point.checkpoint_fraction
    shares = {member.checkpoint_fraction for member in members}
    nearest_share = min(shares, key=lambda value: (abs(value - share), -value))
    same_share = [member for member in members if member.checkpoint_fraction == nearest_share]
    if all(required_bytes(member) is None for member in members):
        # Without predictions: as much activation memory, of the budget, as it took there.
        room = target.budget_bytes / source.budget_bytes * source.activation_size / target.activation_size
        wanted = point.micro_batch_size * room
        below = [member for member in same_share if member.micro_batch_size <= max(wanted, 1.0)]
        yield _with_tokens_a_step(below or same_share, point, source, target, largest=bool(below))
        return
    yield _with_tokens_a_step(same_share, point, source, target, largest=True)
    alike = min(
        {member.micro_batch_size for member in members},
        key=lambda size: abs(log(size * target.seq_len / tokens)),
    )
    same_tokens = [member for member in members if member.micro_batch_size == alike]
    least = min(member.checkpoint_fraction for member in same_tokens)
    yield _with_tokens_a_step(
        [member for member in same_tokens if member.checkpoint_fraction == least],
        point,
        source,
        target,
        largest=True,
    )


def fits_comfortably(point: Point, budget_bytes: int, required_bytes: Required) -> bool:
    """Whether a point is predicted to fit with a little to spare, or nothing is predicted of it."""
    needed = required_bytes(point)
    return needed is None or needed <= COMFORTABLE_SHARE * budget_bytes


def _with_tokens_a_step(
    members: Sequence[Point], point: Point, source: Profile, target: Profile, *, largest: bool
) -> Point:
    """Of these the one with the largest (or smallest) micro batch; of its accumulations the like one."""
    sizes = [member.micro_batch_size for member in members]
    size = max(sizes) if largest else min(sizes)
    wanted = point.micro_batch_size * point.gradient_accumulation_steps * source.seq_len * source.gpus
    at_once = size * target.seq_len * target.gpus
    return min(
        (member for member in members if member.micro_batch_size == size),
        key=lambda member: abs(log(at_once * member.gradient_accumulation_steps / wanted)),
    )


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

    if wanted in groups:
        return wanted
    best = min(groups, key=distance)
    return best if distance(best)[0] <= MOST_CHANGED else None
