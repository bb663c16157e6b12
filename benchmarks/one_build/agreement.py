"""How far two ways of measuring the same points agree, and what a point costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean, median
from typing import Any

Row = Mapping[str, Any]


def pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Measurements on a reused engine, each with the nearest of the same point in a fresh process."""
    found = []
    for place, row in enumerate(rows):
        if row["result"]["build"] != "reused" or not _is_good(row):
            continue
        alike = [
            other for other, beside in enumerate(rows) if _is_fresh(beside) and _key(beside) == _key(row)
        ]
        if alike:
            found.append((row, rows[min(alike, key=lambda other: abs(other - place))]))
    return found


def noise(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Points measured in fresh processes time after time: how far one way agrees with itself."""
    by_point: dict[str, list[Row]] = {}
    for row in rows:
        if _is_fresh(row):
            by_point.setdefault(_key(row), []).append(row)
    return [both for same in by_point.values() for both in pairwise(same)]


def differences(both: Sequence[tuple[Row, Row]], figure: str) -> list[float]:
    """By how much the first of each pair shows more, as a share of the second."""
    return [one["result"][figure] / other["result"][figure] - 1.0 for one, other in both]


def summary(rows: Sequence[Row]) -> str:
    """Lines that say it all."""
    both, same = pairs(rows), noise(rows)
    lines = [f"{len(both)} measurements on a reused engine, each beside one in a fresh process"]
    for figure in ("tokens_per_second", "peak_allocated_bytes", "required_device_bytes"):
        for name, found in (("reused against fresh", both), ("fresh against fresh", same)):
            shares = differences(found, figure)
            if shares:
                largest = max(shares, key=abs)
                middle = median(abs(share) for share in shares)
                lines.append(
                    f"{figure:22} {name:21} median {median(shares):+.2%}, of its size {middle:.2%}, "
                    f"largest {largest:+.2%}"
                )
    for way in ("reused", "fresh"):
        costs = [row["overhead_seconds"] for row in rows if row["result"]["build"] == way]
        if costs:
            lines.append(
                f"overhead of a {way} point: mean {mean(costs):.2f} s, largest {max(costs):.2f} s"
                f" ({len(costs)} points)"
            )
    failed = [row for row in rows if row["result"]["outcome"] == "oom"]
    for row in failed:
        lines.append(f"out of memory, {row['result']['build']}: {row['wall_seconds']:.2f} s  {row['point']}")
    return "\n".join(lines)


def _key(row: Row) -> str:
    return json.dumps([row["model"], row["seq_len"], row["point"]], sort_keys=True)


def _is_fresh(row: Row) -> bool:
    return _is_good(row) and row["result"]["build"] == "fresh"


def _is_good(row: Row) -> bool:
    return bool(row["result"]["outcome"] == "ok")
