"""`autotune run` as a contender: its space, and what it printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.space.loading import load_space
from benchmarks.rivals.cases import Case
from benchmarks.rivals.ours import found_by_autotune, space_of
from benchmarks.rivals.processes import Ended
from trials.wire import Point


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_search_may_not_buy_speed_with_quality_that_the_others_keep(method: str, tmp_path: Path) -> None:
    case = Case.model_validate({"model": "qwen2.5-1.5b", "method": method})
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(space_of(case, {"liger_kernel": False})))
    fields = load_space(str(path)).values
    assert fields["optimizer"] == ("adamw",)
    assert fields.get("lora_rank", (0,)) == (16 if method == "lora" else 0,)
    assert fields["precision"] == ("bf16",)
    assert fields["liger_kernel"] == (False,)
    assert len(fields["micro_batch_size"]) > 5


def ended(tmp_path: Path, stdout: str, *, cut: bool = False, stderr: str = "") -> Ended:
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    out.write_text(stdout)
    err.write_text(stderr)
    return Ended(cut=cut, returncode=0, wall_seconds=61.5, stdout=out, stderr=err)


def answer(**changes: Any) -> str:
    point = Point(micro_batch_size=8, gradient_accumulation_steps=4).model_dump(mode="json")
    values: dict[str, Any] = {
        "study": "rivals",
        "winner": {"point": point, "tokens_per_second": 42000.5, "confirmed": True},
        "trials": {"ok": 4, "stopped": 3, "oom": 1, "crash": 0},
        "skipped": 17,
    }
    return json.dumps(values | changes)


def test_trials_and_ooms_are_counted_from_its_answer(tmp_path: Path) -> None:
    found = found_by_autotune(ended(tmp_path, answer()))
    assert found.status == "finished"
    assert (found.tried, found.ooms, found.own_tokens_per_second) == (8, 1, 42000.5)
    assert found.point is not None and found.point.micro_batch_size == 8
    assert found.note == ""


def test_an_unconfirmed_winner_of_a_search_that_was_cut_counts_and_is_said_to_be_one(tmp_path: Path) -> None:
    winner = json.loads(answer())["winner"] | {"confirmed": False}
    found = found_by_autotune(ended(tmp_path, answer(winner=winner), cut=True))
    assert (found.status, found.note) == ("cut", "the winner is not confirmed")
    assert found.point is not None


def test_no_winner_and_no_answer_are_failures_with_a_reason(tmp_path: Path) -> None:
    nothing = found_by_autotune(ended(tmp_path, answer(winner=None)))
    assert (nothing.status, nothing.point, nothing.note) == ("failed", None, "nothing fits")
    broken = found_by_autotune(ended(tmp_path, "", stderr="Error: torch is not installed\n"))
    assert broken.status == "failed"
    assert "torch is not installed" in broken.note
