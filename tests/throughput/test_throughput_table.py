"""A table's file is read as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from recorded import GIB, grid, unseen_prior

from benchmarks.search.replay import Case, replay
from benchmarks.search.table import read_table
from trials.wire import Outcome, Point


def written(folder: Path) -> Path:
    """Two builds of a tiny model, one point of which ran out of memory."""
    inputs = dict(grid().inputs) | {"budget_bytes": 24 * GIB, "rates": {"launch_seconds": 2e-5}}
    lines = [inputs]
    for rank, size, outcome, speed, setup in (
        (16, 1, "ok", 1000.0, 12.0),
        (16, 2, "ok", 1900.0, None),
        (16, 4, "oom", None, None),
        (32, 1, "ok", 950.0, 30.0),
    ):
        point = Point(micro_batch_size=size, lora_rank=rank)
        row = {"point": point.model_dump(mode="json"), "outcome": outcome, "tokens_per_second": speed}
        row |= {"low": speed and 0.99 * speed, "high": speed and 1.01 * speed, "setup_seconds": setup}
        row |= {"measure_seconds": 3.0, "required_device_bytes": 20 * GIB, "predicted": 20 * GIB}
        lines.append(row)
    path = folder / "tiny.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_was_measured_is_read_back(tmp_path: Path) -> None:
    table = read_table(written(tmp_path))
    assert table.name == "tiny" and table.rates.launch_seconds == 2e-5
    assert sorted(table.measured.values()) == [950.0, 1000.0, 1900.0]
    assert table.rows[Point(micro_batch_size=4, lora_rank=16)].outcome is Outcome.OOM
    assert sorted(table.setup_seconds.values()) == [12.0, 30.0]


def test_a_replay_pays_for_each_build_what_it_took_and_meets_the_out_of_memory(tmp_path: Path) -> None:
    case = Case(read_table(written(tmp_path)), 24 * GIB)
    assert case.best == 1900.0 and len(case.points) == 4
    found = replay(case, "grid", 0, unseen_prior())
    assert found.ooms == 1 and found.regrets[-1] == 0.0
    took = np.diff([0.0, *found.seconds])
    # 12 and 30 s of building, 3 s of steps each; on the engine that lives a change of 0.3 s and 3 s of steps,
    # or a second until memory is out.
    assert sorted(np.round(took, 1)) == [1.3, 3.3, 15.0, 33.0]
    assert replay(Case(read_table(written(tmp_path)), 19 * GIB), "grid", 0, unseen_prior()).regrets == ()
