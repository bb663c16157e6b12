"""Points become vectors without losing anything, and neighbours stay neighbours."""

from __future__ import annotations

from synthetic_training import space_points

from autotune.samplers.encoding import Encoding
from autotune.samplers.grid import golden_walk
from trials.wire import Point


def test_different_points_have_different_codes() -> None:
    points = space_points("any")
    encoding = Encoding(points)
    assert len({encoding.encode(point) for point in points}) == len(points)


def test_only_what_varies_is_a_knob_and_what_follows_is_none() -> None:
    names = [knob.name for knob in Encoding(space_points("any")).knobs]
    assert names == [
        "micro_batch_size",
        "checkpoint_fraction",
        "zero_stage+offload",
        "lora_rank",
        "quantization",
        "optimizer",
        "liger_kernel",
    ]
    free = [Point(micro_batch_size=m, gradient_accumulation_steps=g) for m in (1, 2) for g in (1, 2)]
    assert [k.name for k in Encoding(free).knobs] == ["micro_batch_size", "gradient_accumulation_steps"]
    assert Encoding([Point()]).knobs == ()


def test_the_default_bucket_is_a_value_like_others() -> None:
    points = [Point(zero_stage=2, zero_bucket_elements=bucket) for bucket in (None, 1000, 500)]
    assert [Encoding(points).encode(point) for point in points] == [(0,), (2,), (1,)]


def test_the_nearest_point_is_near_in_size_before_it_differs_in_kind() -> None:
    points = [Point(micro_batch_size=m, optimizer=o) for m in (1, 2, 4, 8) for o in ("adamw", "adamw8bit")]
    encoding = Encoding(points)
    wanted = encoding.encode(Point(micro_batch_size=4, optimizer="adamw8bit"))
    assert encoding.nearest(wanted, points) == Point(micro_batch_size=4, optimizer="adamw8bit")
    others = [
        Point(micro_batch_size=4),
        Point(micro_batch_size=2, optimizer="adamw8bit"),
        Point(micro_batch_size=1, optimizer="adamw8bit"),
    ]
    assert encoding.nearest(wanted, others) == others[1]


def test_the_walk_meets_every_point_once_for_any_number_of_points() -> None:
    points = space_points("lora")
    for count in (1, 2, 3, 4, 5, 6, 8, 89, 100, 960):
        assert len(set(golden_walk(points[:count]))) == count
