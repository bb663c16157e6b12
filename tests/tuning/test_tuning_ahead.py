"""In which groups points are predicted ahead."""

from __future__ import annotations

from autotune.tuning.ahead import UNSHARED_GROUP, groups, probes
from trials.wire import Point

POINTS = [
    Point(micro_batch_size=size, lora_rank=rank, zero_stage=stage, offload=offload, liger_kernel=liger)
    for size in range(1, 6)
    for rank in (0, 16)
    for stage, offload in ((0, "none"), (3, "none"), (3, "optimizer+parameters"))
    for liger in (False, True)
]
# Every point is worth something else; the last is the most promising.
WORTH = {point: float(index) for index, point in enumerate(POINTS)}


def is_shared(point: Point) -> bool:
    return point.zero_stage < 3


def everything(_: Point) -> bool:
    return True


def test_no_point_is_lost() -> None:
    for workers in (1, 2, 16):
        found = [point for group in groups(POINTS, is_shared, WORTH, workers) for point in group]
        assert sorted(map(repr, found)) == sorted(map(repr, POINTS))


def test_points_without_shared_traces_come_last_and_few_at_a_time() -> None:
    found = groups(POINTS, is_shared, WORTH, 1)
    shared = [all(map(is_shared, group)) for group in found]
    assert shared == sorted(shared, reverse=True)
    assert all(len(group) <= UNSHARED_GROUP for group, alike in zip(found, shared, strict=True) if not alike)


def test_more_workers_take_more_kinds_at_once() -> None:
    assert len(groups(POINTS, everything, WORTH, 64)) == 1
    assert len(groups(POINTS, everything, WORTH, 1)) > 4


def test_the_most_promising_point_is_in_the_first_group() -> None:
    found = groups(POINTS, everything, WORTH, 1)
    best = [max(WORTH[point] for point in group) for group in found]
    assert POINTS[-1] in found[0]
    assert best == sorted(best, reverse=True)


def test_probes_are_as_different_as_there_are() -> None:
    found = probes(POINTS)
    assert len(found) == 2
    assert {point.liger_kernel for point in found} == {False, True}
