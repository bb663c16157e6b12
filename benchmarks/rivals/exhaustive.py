"""The best of an exhaustive table of the same space, recorded by benchmarks/search; nothing is run here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.contender import Found
from benchmarks.search.table import FOLDER, Row, read_tables
from trials.wire import Outcome, Point


def best_of_tables(case: Case, setting: Setting, folder: Path = FOLDER) -> Found | None:
    """The fastest recorded point that fits the budget, of all tables of this case; None without a table.

    A table's first line holds its inputs, each other line a measured point.
    """
    tables = [table for table in read_tables(folder) if _is_about(table.inputs, case, setting)]
    rows = [row for table in tables for row in table.rows.values() if _trains_alike(row.point, case)]
    fitting = [row for row in rows if _fits(row, setting.budget_bytes)]
    if not fitting:
        return None
    best = max(fitting, key=lambda row: row.tokens_per_second or 0.0)
    measured = [row for row in rows if row.outcome is Outcome.OK]
    return Found(
        status="finished",
        wall_seconds=sum((row.setup_seconds or 0) + (row.measure_seconds or 0) for row in rows),
        point=best.point,
        own_tokens_per_second=best.tokens_per_second,
        tried=len(rows),
        ooms=sum(row.outcome is Outcome.OOM for row in rows),
        note=f"recorded before: {', '.join(table.name for table in tables)}",
        details={"fitting": len(fitting), "measured": len(measured)},
    )


def _is_about(inputs: Mapping[str, Any], case: Case, setting: Setting) -> bool:
    return (
        inputs["model"]["name"] == case.model
        and inputs["method"] in (case.method, "any")
        and inputs["seq_len"] == setting.seq_len
        and inputs["global_batch"] == setting.global_batch
    )


def _trains_alike(point: Point, case: Case) -> bool:
    """Whether it trains what every contender trains: no other rank, no quantization, AdamW in fp32."""
    return point.lora_rank == case.lora_rank and point.quantization == "none" and point.optimizer == "adamw"


def _fits(row: Row, budget_bytes: int) -> bool:
    needed = row.required_device_bytes
    ran = row.outcome is Outcome.OK and bool(row.tokens_per_second)
    return ran and (needed is None or needed <= budget_bytes)
