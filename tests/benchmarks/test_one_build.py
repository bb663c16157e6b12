"""How the two ways of measuring a point are set beside each other."""

from __future__ import annotations

from typing import Any

from benchmarks.one_build.__main__ import ways
from benchmarks.one_build.agreement import noise, pairs, summary
from trials.wire import Point


def row(size: int, build: str, speed: float, outcome: str = "ok") -> dict[str, Any]:
    figures = ("tokens_per_second", "peak_allocated_bytes", "required_device_bytes")
    result = {"build": build, "outcome": outcome, **dict.fromkeys(figures, speed)}
    point = {"micro_batch_size": size}
    about = {"model": "m", "seq_len": 1, "point": point}
    return {**about, "result": result, "overhead_seconds": 1.0, "wall_seconds": 2.0}


def speeds(both: list[tuple[Any, Any]]) -> list[tuple[float, float]]:
    return [(one["result"]["tokens_per_second"], other["result"]["tokens_per_second"]) for one, other in both]


def test_every_point_is_measured_on_an_engine_that_measured_another_and_then_alone() -> None:
    small, large, huge = (Point(micro_batch_size=size) for size in (1, 2, 64))
    order = list(ways([small, large], [huge], 2))
    one = [(small, False), (large, False), (large, True), (large, False), (small, False), (small, True)]
    # What is too large is met on an engine that has measured something, too.
    assert order == [*one, *one, (small, False), (huge, False), (huge, True)]


def test_each_reused_measurement_stands_beside_the_nearest_fresh_one() -> None:
    # The host became half as fast after the third: whoever compared with the first would be misled.
    rows = [row(2, "fresh", 100.0), row(1, "fresh", 80.0), row(2, "reused", 101.0), row(2, "fresh", 50.0)]
    rows += [row(1, "reused", 41.0), row(1, "fresh", 40.0)]
    rows += [row(4, "reused", 9.0), row(8, "reused", 1.0, "oom")]
    assert speeds(pairs(rows)) == [(101.0, 50.0), (41.0, 40.0)]
    assert speeds(noise(rows)) == [(100.0, 50.0), (80.0, 40.0)]
    assert "reused against fresh  median +52.25%" in summary(rows)
    assert "out of memory, reused: 2.00 s" in summary(rows)
