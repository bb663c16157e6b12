"""The machine's memory outside the allocator: per GPU, driver and torch, and per kind of configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machines import machine

from autotune.running import OutsideShare
from trials.wire import Outcome, Phase, Point, TrialResult

PLAIN, STAGE3, OFFLOAD = Point(), Point(zero_stage=3), Point(zero_stage=2, offload="optimizer")


def seen(outside_bytes: int | None, outcome: Outcome = Outcome.OK) -> TrialResult:
    return TrialResult(
        trial_id="1", outcome=outcome, phase=Phase.LATER_STEP, outside_allocator_bytes=outside_bytes
    )


def test_what_was_learned_is_there_for_the_next_study(tmp_path: Path) -> None:
    OutsideShare(machine(), tmp_path).learn(PLAIN, seen(2_000))
    assert OutsideShare(machine(), tmp_path).bytes_for(Point(micro_batch_size=8, lora_rank=4)) == 2_000


def test_the_largest_share_seen_of_a_kind_counts(tmp_path: Path) -> None:
    share = OutsideShare(machine(), tmp_path)
    for value in (2_000, 2_500, 1_000):
        share.learn(PLAIN, seen(value))
    assert share.bytes_for(PLAIN) == 2_500


def test_each_kind_has_its_own_and_an_unknown_one_the_largest(tmp_path: Path) -> None:
    share = OutsideShare(machine(), tmp_path)
    assert share.bytes_for(PLAIN) == 0
    share.learn(PLAIN, seen(2_000))
    share.learn(STAGE3, seen(2_400))
    assert share.bytes_for(Point(zero_stage=2)) == 2_000
    assert share.bytes_for(STAGE3) == 2_400
    for unknown in (OFFLOAD, Point(precision="fp32"), Point(zero_stage=3, offload="optimizer")):
        assert share.bytes_for(unknown) == 2_400


@pytest.mark.parametrize("outcome", [Outcome.OOM, Outcome.CRASH, Outcome.TIMEOUT, Outcome.NAN])
def test_a_failed_trial_teaches_nothing(tmp_path: Path, outcome: Outcome) -> None:
    share = OutsideShare(machine(), tmp_path)
    share.learn(PLAIN, seen(9_000, outcome))
    share.learn(PLAIN, seen(None))
    assert share.bytes_for(PLAIN) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "other", [{"gpu_name": "NVIDIA L4"}, {"driver": "570.00"}, {"versions": {"torch": "2.12.0"}}], ids=str
)
def test_another_gpu_driver_or_torch_has_figures_of_its_own(tmp_path: Path, other: dict[str, object]) -> None:
    OutsideShare(machine(), tmp_path).learn(PLAIN, seen(2_000))
    theirs = OutsideShare(machine(**other), tmp_path)
    assert theirs.bytes_for(PLAIN) == 0
    theirs.learn(PLAIN, seen(700))
    assert OutsideShare(machine(), tmp_path).bytes_for(PLAIN) == 2_000
    assert OutsideShare(machine(**other), tmp_path).bytes_for(PLAIN) == 700


def test_two_studies_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    ours, theirs = OutsideShare(machine(), tmp_path), OutsideShare(machine(gpu_name="NVIDIA L4"), tmp_path)
    theirs.learn(PLAIN, seen(700))
    ours.learn(PLAIN, seen(2_000))
    assert OutsideShare(machine(gpu_name="NVIDIA L4"), tmp_path).bytes_for(PLAIN) == 700


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"a": 3}', '{"a": {"b": null}}', '{"a": {"b": "x"}}', '{"a": [1]}', "\x00"]
)
def test_a_file_that_cannot_be_read_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "machine.json").write_text(text)
    share = OutsideShare(machine(), tmp_path)
    assert share.bytes_for(PLAIN) == 0
    share.learn(PLAIN, seen(2_000))
    assert json.loads((tmp_path / "machine.json").read_text())
    assert OutsideShare(machine(), tmp_path).bytes_for(PLAIN) == 2_000
    assert [path.name for path in tmp_path.iterdir()] == ["machine.json"]


def test_on_the_cpu_nothing_is_outside(tmp_path: Path) -> None:
    share = OutsideShare(machine("cpu"), tmp_path)
    share.learn(PLAIN, seen(2_000))
    assert share.bytes_for(PLAIN) == 0
    assert not list(tmp_path.iterdir())
