"""The best of an exhaustive table of the same space, recorded by benchmarks/search; nothing is run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.contender import Found
from trials.wire import Point

TABLES = Path(__file__).parent.parent / "search" / "tables"


def best_of_tables(case: Case, setting: Setting, folder: Path = TABLES) -> Found | None:
    """The fastest recorded point that fits the budget, of all tables of this case; None without a table.

    A table's first line holds its inputs, each other line a measured point.
    """
    tables = [path for path in sorted(folder.glob("*.jsonl")) if _is_about(_first(path), case, setting)]
    measurements = [row for path in tables for row in _rows(path) if _trains_alike(row, case)]
    # A point's later line was measured longer.
    rows = list({json.dumps(row["point"], sort_keys=True): row for row in measurements}.values())
    fitting = [row for row in rows if _fits(row, setting.budget_bytes)]
    if not fitting:
        return None
    best = max(fitting, key=lambda row: float(row["tokens_per_second"]))
    measured = [row for row in rows if row["outcome"] == "ok"]
    return Found(
        status="finished",
        wall_seconds=sum(
            (row.get("setup_seconds") or 0) + (row.get("measure_seconds") or 0) for row in measurements
        ),
        point=Point.model_validate(best["point"]),
        own_tokens_per_second=best["tokens_per_second"],
        tried=len(rows),
        ooms=sum(row["outcome"] == "oom" for row in rows),
        note=f"recorded before: {', '.join(path.stem for path in tables)}",
        details={"fitting": len(fitting), "measured": len(measured)},
    )


def _is_about(inputs: dict[str, Any], case: Case, setting: Setting) -> bool:
    return (
        inputs["model"]["name"] == case.model
        and inputs["method"] in (case.method, "any")
        and inputs["seq_len"] == setting.seq_len
        and inputs["global_batch"] == setting.global_batch
    )


def _trains_alike(row: dict[str, Any], case: Case) -> bool:
    """Whether a row trains what every contender trains: no other rank, no quantization, AdamW in fp32."""
    point = Point.model_validate(row["point"])
    return point.lora_rank == case.lora_rank and point.quantization == "none" and point.optimizer == "adamw"


def _fits(row: dict[str, Any], budget_bytes: int) -> bool:
    needed = row.get("required_device_bytes")
    return (
        row["outcome"] == "ok"
        and bool(row.get("tokens_per_second"))
        and (needed is None or needed <= budget_bytes)
    )


def _first(path: Path) -> dict[str, Any]:
    inputs: dict[str, Any] = json.loads(path.read_text().partition("\n")[0])
    return inputs


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:] if line.strip()]
