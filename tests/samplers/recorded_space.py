"""The grid that was measured on an H200, as a space to sample."""

from __future__ import annotations

from functools import cache

from benchmarks.search.table import FOLDER, Table, read_table
from trials.wire import Point

GIB = 2**30


@cache
def grid() -> Table:
    """Qwen2.5-1.5B with LoRA: 43 points of micro batch and share of checkpointed layers."""
    return read_table(FOLDER / "h200_qwen2.5-1.5b_lora_grid.jsonl")


def speed_of(point: Point) -> float:
    """Tokens per second as recorded."""
    return grid().measured[point]
