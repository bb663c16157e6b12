"""The benchmark replays the search that `autotune run` makes, on tables of studies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reuse_samples import GIB, SPACE, inputs_of, need_bytes, record

from autotune.models import resolve_model
from autotune.throughput import Training, predicted_speeds
from benchmarks.reuse.__main__ import main
from benchmarks.reuse.pairs import pairs_of
from benchmarks.reuse.replay import Carry, from_nothing, with_head_start
from benchmarks.reuse.tables import Table, read_tables, table_lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of three models and one further length: the samples' memory, and the speeds of physics."""
    folder = tmp_path_factory.mktemp("tables")
    for model, seq_len in (
        ("qwen2.5-1.5b", 1024),
        ("qwen2.5-0.5b", 1024),
        ("gpt2-xl", 1024),
        ("qwen2.5-1.5b", 2048),
    ):
        inputs = inputs_of(model, seq_len=seq_len, budget_bytes=30 * GIB)
        speeds = predicted_speeds(Training(resolve_model(model), seq_len), SPACE)
        records = [
            record(number, point, speed if need_bytes(point) <= 30 * GIB else None)
            for number, (point, speed) in enumerate(zip(SPACE, speeds, strict=True))
        ]
        lines = table_lines(inputs, resolve_model(model), records)
        (folder / f"{model}-{seq_len}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def tables(folder: Path) -> list[Table]:
    return read_tables([folder])


def test_a_table_holds_what_the_study_held(folder: Path, tables: list[Table]) -> None:
    header = json.loads((folder / "gpt2-xl-1024.jsonl").read_text().splitlines()[0])
    assert {"model", "seq_len", "method", "gpu", "budget_bytes", "global_batch", "versions"} <= set(header)
    assert len(tables[0].results) == len(SPACE)
    for point, result in tables[0].results.items():
        assert (result.tokens_per_second is not None) == (need_bytes(point) <= 30 * GIB)
    speeds = predicted_speeds(Training(resolve_model("gpt2-xl"), 1024), SPACE[:1])
    assert tables[0].known(SPACE[0]).tokens_per_second == pytest.approx(speeds[0])


def test_pairs_are_of_the_kinds_they_are_called(tables: list[Table]) -> None:
    pairs = {(pair.kind, pair.source.name, pair.target.name) for pair in pairs_of(tables)}
    assert ("near", "qwen2.5-0.5b-1024", "qwen2.5-1.5b-1024") in pairs
    assert ("far", "gpt2-xl-1024", "qwen2.5-1.5b-1024") in pairs
    assert ("seq_len", "qwen2.5-1.5b-2048", "qwen2.5-1.5b-1024") in pairs
    assert ("adversarial", "gpt2-xl-1024 reversed", "gpt2-xl-1024") in pairs
    assert sum(kind == "budget" for kind, _, _ in pairs) == 2 * len(tables)
    # Another model at another length is neither near nor far.
    assert not any(source == "gpt2-xl-1024" and "2048" in target for _, source, target in pairs)


def test_a_reversed_table_prefers_what_was_slowest(tables: list[Table]) -> None:
    table = tables[0]
    ran = [point for point in table.points if table.known(point).tokens_per_second]

    def rank(which: Table) -> list[object]:
        return sorted(ran, key=lambda point: which.known(point).tokens_per_second or 0.0)

    assert rank(table.reversed()) == rank(table)[::-1]


def test_a_source_saves_most_of_the_trials(tables: list[Table]) -> None:
    by_kind = {pair.kind: pair for pair in pairs_of(tables)}
    for kind, most in (("near", 3), ("far", 3), ("seq_len", 3), ("budget", 3)):
        pair = by_kind[kind]
        alone = from_nothing(pair.target, "random", 0).trials or 41
        helped = with_head_start(pair, "random", 0, Carry()).trials
        assert helped is not None and helped <= most < alone


def test_the_command_writes_a_table_of_all_kinds(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    for name in ("qwen2.5-1.5b-1024", "qwen2.5-0.5b-1024"):
        (tmp_path / "few" / f"{name}.jsonl").write_text((folder / f"{name}.jsonl").read_text())
    output = tmp_path / "out.md"
    main(["--tables", str(tmp_path / "few"), "--sampler", "random", "--seeds", "1", "--output", str(output)])
    text = output.read_text()
    assert "| near | 2 |" in text and "| budget | 4 |" in text and "| adversarial | 2 |" in text
