"""How far two ways of measuring the same points agree, and what a point costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

Row = Mapping[str, Any]


def pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The points that were measured well on a reused engine and in a fresh process, in that order."""
    fresh = {_key(row): row for row in rows if row["asked"] == "fresh" and _is_good(row)}
    reused = [row for row in rows if row["result"]["build"] == "reused" and _is_good(row)]
    return [(row, fresh[_key(row)]) for row in reused if _key(row) in fresh]


def noise(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The points that were measured well twice in fresh processes: how far one way agrees with itself."""
    asked = {_key(row): row for row in rows if row["asked"] == "fresh" and _is_good(row)}
    first = [
        row
        for row in rows
        if row["asked"] == "reused" and row["result"]["build"] == "fresh" and _is_good(row)
    ]
    return [(row, asked[_key(row)]) for row in first if _key(row) in asked]


def differences(both: Sequence[tuple[Row, Row]], figure: str) -> list[float]:
    """By how much the first of each pair shows more, as a share of the second."""
    return [one["result"][figure] / other["result"][figure] - 1.0 for one, other in both]


def summary(rows: Sequence[Row]) -> str:
    """Lines that say it all."""
    both, same = pairs(rows), noise(rows)
    lines = [f"{len(both)} points measured on a reused engine and in a fresh process"]
    for figure in ("tokens_per_second", "peak_allocated_bytes", "required_device_bytes"):
        for name, found in (("reused against fresh", both), ("fresh against fresh", same)):
            shares = differences(found, figure)
            if shares:
                largest = max(shares, key=abs)
                middle = median(abs(share) for share in shares)
                lines.append(f"{figure:22} {name:21} median {middle:.2%}, largest {largest:+.2%}")
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


def _is_good(row: Row) -> bool:
    return bool(row["result"]["outcome"] == "ok")
