"""The best of recorded tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.exhaustive import best_of_tables
from trials.wire import Point

CASE = Case(model="qwen2.5-1.5b", method="lora")
SETTING = Setting()
GIB = 1 << 30


def row(micro_batch: int, speed: float | None, needs_gib: float | None, **changes: Any) -> dict[str, Any]:
    point = Point.model_validate({"micro_batch_size": micro_batch, "lora_rank": 16} | changes)
    return {
        "point": point.model_dump(mode="json"),
        "outcome": "ok" if speed else "oom",
        "tokens_per_second": speed,
        "required_device_bytes": None if needs_gib is None else int(needs_gib * GIB),
        "setup_seconds": 5.0,
        "measure_seconds": 3.0,
    }


def table(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> None:
    inputs = {
        "model": {"name": "qwen2.5-1.5b", "config": {}},
        "seq_len": 1024,
        "method": "lora",
        "global_batch": 32,
        "budget_bytes": None,
    } | changes
    lines = [inputs, *rows]
    name = f"table{len(list(folder.iterdir()))}.jsonl"
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_fastest_that_fits_and_trains_the_same_is_the_best(tmp_path: Path) -> None:
    rows = [
        row(4, 21000.0, 20.0),
        row(6, 24600.0, 23.9),
        row(8, 30000.0, 24.1),
        row(8, 31000.0, 12.0, quantization="nf4"),
        row(8, 32000.0, 12.0, lora_rank=8),
        row(16, None, None),
    ]
    table(tmp_path, rows)
    best = best_of_tables(CASE, SETTING, tmp_path)
    assert best is not None and best.point is not None
    assert (best.point.micro_batch_size, best.own_tokens_per_second) == (6, 24600.0)
    # The quantised row and the one of rank 8 belong to no contender.
    assert (best.tried, best.ooms, best.wall_seconds) == (4, 1, 32.0)


def test_tables_of_other_conditions_say_nothing(tmp_path: Path) -> None:
    rows = [row(4, 21000.0, 20.0)]
    table(tmp_path, rows, seq_len=2048)
    table(tmp_path, rows, global_batch=8)
    table(tmp_path, rows, model={"name": "qwen2.5-0.5b", "config": {}})
    assert best_of_tables(CASE, SETTING, tmp_path) is None
    assert best_of_tables(CASE, SETTING, tmp_path / "none") is None
