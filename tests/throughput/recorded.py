"""The grid that was measured on an H200, and what the model of speed believes without ever having seen it."""

from __future__ import annotations

from functools import cache

from autotune.throughput.coefficients import Prior
from benchmarks.search.fit import all_sources, fit_prior
from benchmarks.search.table import FOLDER, Table, read_table

GIB = 2**30
BUDGETS_GIB = (12, 16, 24, 32, 40, 48, 64, 80)


@cache
def grid() -> Table:
    """Qwen2.5-1.5B with LoRA: 43 points of micro batch and share of checkpointed layers."""
    return read_table(FOLDER / "h200_qwen2.5-1.5b_lora_grid.jsonl")


@cache
def unseen_prior() -> Prior:
    """Coefficients fitted on everything but that grid, and nothing else of its model and method."""
    return fit_prior(all_sources(without=grid()), "cuda")
