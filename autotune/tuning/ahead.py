"""In which order points are predicted ahead: by what shares traces, the likely fast ones first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trials.wire import Point

# Of points that share no traces every few need one of their own: small groups keep to the time.
UNSHARED_GROUP = 12
# So many tracing processes are busy with the points of one kind.
WORKERS_OF_A_KIND = 4
# So many points, as different as there are, say whether anything of a model can be predicted at all.
PROBES = 4


def groups(
    points: Sequence[Point], is_shared: Callable[[Point], bool], worth: Mapping[Point, float], workers: int
) -> list[list[Point]]:
    """The points in groups, each predicted at once; those with the most promising point first.

    Args:
        points: what is to be predicted.
        is_shared: whether a point's figures come from traces that serve many.
        worth: how promising each point is.
        workers: tracing processes: the more there are, the more kinds of points keep them busy.
    """
    kinds: dict[tuple[bool, ...], list[Point]] = {}
    alone: list[Point] = []
    for point in points:
        if is_shared(point):
            kinds.setdefault(_kind(point), []).append(point)
        else:
            alone.append(point)
    ordered = sorted(kinds.values(), key=lambda members: -max(worth[point] for point in members))
    together = max(1, workers // WORKERS_OF_A_KIND)
    found = [
        [point for members in ordered[start : start + together] for point in members]
        for start in range(0, len(ordered), together)
    ]
    alone.sort(key=lambda point: -worth[point])
    found += [alone[start : start + UNSHARED_GROUP] for start in range(0, len(alone), UNSHARED_GROUP)]
    return found


def probes(points: Sequence[Point]) -> list[Point]:
    """A few points, as different as there are."""
    kinds = {(p.attention, p.quantization, p.precision, p.liger_kernel): p for p in reversed(points)}
    return list(kinds.values())[:PROBES]


def _kind(point: Point) -> tuple[bool, ...]:
    return (
        point.offload.endswith("parameters"),
        point.zero_stage == 3,
        point.quantization != "none",
        not point.liger_kernel,
        point.offload != "none",
        point.lora_rank == 0,
        point.optimizer != "adamw",
    )
