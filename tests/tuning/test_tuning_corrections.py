"""What a trial measured beyond its prediction is added to later predictions, and nothing is hidden by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prediction_samples import (
    GIB,
    OUTSIDE_BYTES,
    Heard,
    make_foresight,
    measured_row,
    phases_of,
    point_of,
    prediction,
    result,
)

from autotune.running.kept_json import KeptJson
from autotune.tuning.corrections import KEPT, Corrections, kind_of
from autotune.tuning.hindsight import look_back
from trials.wire import Outcome, Point

# Llama-2-7B with an NF4 base, measured at three micro batches with a loader that builds the whole model in
# 16 bit before it quantises: its load peaks at 13.5 GB whatever the micro batch. Ours fills a quantised
# model, which holds half a byte for each of the 6,476,005,376 weights of linear layers, 1/64 byte of scales,
# and embedding and head in 16 bit: what a prediction of the other loader's runs would say.
QLORA: dict[str, Any] = {
    "model": "llama2-7b",
    "method": "qlora",
    "checkpoint_fraction": 1.0,
    "quantization": "nf4",
    "expandable_segments": False,
}
OUR_LOAD_BYTES = 6_476_005_376 // 2 + 6_476_005_376 // 64 + 2 * 2 * 32_000 * 4096
THEIR_LOAD_BYTES = 13_521_141_760


def rows() -> list[dict[str, Any]]:
    return [measured_row(**QLORA, micro_batch_size=size) for size in (1, 4, 8)]


def test_what_one_trial_showed_corrects_its_phase_for_the_rest_of_the_kind(tmp_path: Path) -> None:
    foresight = make_foresight(tmp_path, budget_bytes=24 * GIB)
    one, four, eight = rows()
    for row in (one, four, eight):
        foresight.know(point_of(row), prediction(phases_of(row, load=OUR_LOAD_BYTES, start=OUR_LOAD_BYTES)))
    before = foresight.outlook(point_of(eight))

    measured = phases_of(one, start=OUR_LOAD_BYTES)
    assert measured["load"] == THEIR_LOAD_BYTES
    look_back(foresight, "trial 1", point_of(one), result(measured), Heard())

    after = foresight.outlook(point_of(eight))
    assert before is not None and after is not None
    assert before.prediction.setup_peak_allocated_bytes == OUR_LOAD_BYTES
    assert before.prediction.required_device_bytes < 10_000_879_616 + 20 * 2**20 + OUTSIDE_BYTES + 1
    # Micro batch 8 was measured too: the load is exact now, and the steps, which were right, stay so.
    assert after.prediction.setup_peak_allocated_bytes == eight["measured"]["setup_peak_allocated_bytes"]
    assert after.prediction.peak_allocated_bytes == eight["measured"]["peak_allocated_bytes"]
    assert after.prediction.required_device_bytes == THEIR_LOAD_BYTES + 20 * 2**20 + OUTSIDE_BYTES


def test_the_user_is_told_of_the_difference_and_of_what_it_excludes(tmp_path: Path) -> None:
    heard = Heard()
    foresight = make_foresight(tmp_path, budget_bytes=14 * GIB)
    for row in rows():
        foresight.know(point_of(row), prediction(phases_of(row, load=OUR_LOAD_BYTES, start=OUR_LOAD_BYTES)))
    one = rows()[0]
    assert foresight.skipped(()) == 0

    look_back(foresight, "trial 1", point_of(one), result(phases_of(one, start=OUR_LOAD_BYTES)), heard)

    assert foresight.skipped({point_of(one)}) == 2
    assert foresight.excluded_by_corrections() == 3
    assert heard[0].startswith("trial 1: 12.6 GiB measured in load where 3.6 GiB was predicted (250.")
    assert "3 configurations that were predicted to fit are left out" in heard[1]


def test_what_is_corrected_is_told_once(tmp_path: Path) -> None:
    heard = Heard()
    foresight = make_foresight(tmp_path)
    for row in rows():
        foresight.know(point_of(row), prediction(phases_of(row, load=OUR_LOAD_BYTES, start=OUR_LOAD_BYTES)))
    for number, row in enumerate(rows(), start=1):
        measured = phases_of(row, start=OUR_LOAD_BYTES)
        look_back(foresight, f"trial {number}", point_of(row), result(measured), heard)

    # The correction of the first trial's kind was right for the others.
    assert [line.split(":")[0] for line in heard] == ["trial 1"]


def test_a_prediction_that_was_right_is_neither_told_nor_corrected(tmp_path: Path) -> None:
    heard = Heard()
    foresight = make_foresight(tmp_path)
    row = rows()[1]
    phases = phases_of(row)
    foresight.know(point_of(row), prediction(phases))

    # 0.4 % off.
    look_back(
        foresight, "trial 1", point_of(row), result({k: int(v * 1.004) for k, v in phases.items()}), heard
    )

    assert heard == []
    assert foresight.corrections.deltas(point_of(row), phases) == {}


def test_one_odd_trial_among_right_ones_moves_nothing(tmp_path: Path) -> None:
    corrections = Corrections(KeptJson(tmp_path / "machine.json"), "key", "m")
    point = Point(lora_rank=16)
    for measured in (10_000, 13_000, 10_010):
        corrections.learn(point, {"later_step": 10_000}, {"later_step": measured})
    assert corrections.deltas(point, {"later_step": 20_000}) == {}

    for measured in (10_200, 10_220, 10_210):
        corrections.learn(point, {"later_step": 10_000}, {"later_step": measured})

    # The median of 0, 10, 200, 210, 220 and 3,000.
    assert corrections.deltas(point, {"later_step": 20_000}) == {"later_step": 205}


def test_a_correction_is_of_its_kind_and_its_phase_only(tmp_path: Path) -> None:
    corrections = Corrections(KeptJson(tmp_path / "machine.json"), "key", "m")
    corrections.learn(
        Point(lora_rank=16), {"load": 100, "later_step": 1000}, {"load": 100, "later_step": 1100}
    )
    phases = {"load": 100, "later_step": 1000}

    alike = [Point(lora_rank=64), Point(lora_rank=16, micro_batch_size=8, checkpoint_fraction=1.0)]
    others = [
        Point(),
        Point(lora_rank=16, quantization="nf4"),
        Point(lora_rank=16, liger_kernel=True),
        Point(lora_rank=16, zero_stage=2),
        Point(lora_rank=16, zero_stage=2, offload="optimizer"),
        Point(lora_rank=16, precision="fp32"),
        Point(lora_rank=16, optimizer="adamw8bit"),
        Point(lora_rank=16, attention="eager"),
    ]

    assert [corrections.deltas(point, phases) for point in alike] == [{"later_step": 100}] * 2
    assert [corrections.deltas(point, phases) for point in others] == [{}] * len(others)
    assert len({kind_of(point) for point in [alike[0], *others]}) == len(others) + 1


def test_the_next_study_on_this_machine_begins_with_what_was_learned(tmp_path: Path) -> None:
    kept, point = KeptJson(tmp_path / "machine.json"), Point(lora_rank=16)
    kept.put("NVIDIA H200 | driver 1", {"stage0-2": 7})
    Corrections(kept, "H200 | torch 2.11.0 | llama", "m").learn(point, {"load": 1000}, {"load": 1100})

    again = Corrections(kept, "H200 | torch 2.11.0 | llama", "m")
    other_versions = Corrections(kept, "H200 | torch 2.13.0 | llama", "m")

    assert again.deltas(point, {"load": 5000}) == {"load": 100}
    assert other_versions.deltas(point, {"load": 5000}) == {}
    # What else the file holds stays.
    assert kept.read()["NVIDIA H200 | driver 1"] == {"stage0-2": 7}


def test_of_a_larger_model_of_the_type_a_smaller_one_takes_no_more_than_its_share(tmp_path: Path) -> None:
    kept, point = KeptJson(tmp_path / "machine.json"), Point(lora_rank=16)
    Corrections(kept, "key", "7b").learn(point, {"load": 10_000}, {"load": 11_000})
    small = Corrections(kept, "key", "1b")

    assert small.deltas(point, {"load": 1_000}) == {"load": 100}
    assert small.deltas(point, {"load": 50_000}) == {"load": 1_000}
    small.learn(point, {"load": 1_000}, {"load": 1_000})
    # Now it is known itself.
    assert small.deltas(point, {"load": 1_000}) == {}


def test_only_the_last_trials_of_a_kind_count(tmp_path: Path) -> None:
    corrections = Corrections(KeptJson(tmp_path / "machine.json"), "key", "m")
    point = Point()
    for measured in [1_500] * KEPT + [1_100] * KEPT:
        corrections.learn(point, {"load": 1_000}, {"load": measured})

    assert corrections.deltas(point, {"load": 1_000}) == {"load": 100}


@pytest.mark.parametrize(
    "value", [None, 7, [], {"kind": 3}, {"kind": {"load": [[1]]}}, {"kind": {"load": [[0, 0, "m"]]}}]
)
def test_what_is_kept_in_another_form_is_learned_anew(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"key": value}))
    corrections = Corrections(KeptJson(path), "key", "m")
    assert corrections.deltas(Point(), {"load": 1000}) == {}
    corrections.learn(Point(), {"load": 1000}, {"load": 1100})
    assert Corrections(KeptJson(path), "key", "m").deltas(Point(), {"load": 1000}) == {"load": 100}


def test_a_trial_that_ended_early_teaches_what_it_completed(tmp_path: Path) -> None:
    heard = Heard()
    foresight = make_foresight(tmp_path, budget_bytes=24 * GIB)
    row = rows()[0]
    phases = phases_of(row)
    foresight.know(point_of(row), prediction(phases))
    measured = {"load": int(phases["load"] * 1.05), "start": phases["start"]}

    look_back(foresight, "trial 1", point_of(row), result(measured, Outcome.OOM), heard)

    assert foresight.corrections.deltas(point_of(row), phases) == {"load": measured["load"] - phases["load"]}
    assert "in load" in heard[0]
