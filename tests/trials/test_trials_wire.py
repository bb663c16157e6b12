"""What crosses the wire is strict, frozen and survives JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from trials.wire import GpuState, ModelSpec, Outcome, Phase, Point, TrialResult, TrialSpec

SPEC = TrialSpec(
    trial_id="7",
    model=ModelSpec(name="m", config={"model_type": "llama", "rope_parameters": {"rope_theta": 1e4}}),
    point=Point(micro_batch_size=3, checkpoint_fraction=0.25, zero_stage=3, offload="optimizer+parameters"),
    seq_len=128,
    lora_targets=("q_proj", "v_proj"),
    budget_bytes=24 << 30,
    log_path="log",
    work_dir="work",
)
RESULT = TrialResult(
    trial_id="7",
    outcome=Outcome.OOM,
    phase=Phase.LATER_STEP,
    step_seconds=(0.25, 0.5),
    phase_peak_allocated_bytes={"load": 1, "start": 2},
    losses=(8.25,),
    ds_config={"bf16": {"enabled": True}},
    lora_targets=("q_proj",),
    versions={"torch": "2.13.0"},
    gpu=GpuState(name="NVIDIA H200", sm_clock_mhz=1980),
)


@pytest.mark.parametrize("message", [SPEC, RESULT], ids=["spec", "result"])
def test_a_message_survives_the_trip_through_json(message: BaseModel) -> None:
    line = json.dumps(message.model_dump(mode="json"))
    assert type(message).model_validate(json.loads(line)) == message


@pytest.mark.parametrize("message", [SPEC, RESULT, SPEC.point, SPEC.model], ids=lambda m: type(m).__name__)
def test_an_unknown_key_is_an_error(message: BaseModel) -> None:
    with pytest.raises(ValidationError, match="zero_stages"):
        type(message).model_validate({**message.model_dump(), "zero_stages": 2})


@pytest.mark.parametrize("message", [SPEC, RESULT], ids=["spec", "result"])
def test_another_version_of_the_wire_is_refused(message: BaseModel) -> None:
    with pytest.raises(ValidationError, match="wire_version"):
        type(message).model_validate({**message.model_dump(mode="json"), "wire_version": 2})


@pytest.mark.parametrize("message", [SPEC, RESULT, SPEC.point], ids=lambda m: type(m).__name__)
def test_a_message_cannot_be_changed(message: BaseModel) -> None:
    name = next(iter(type(message).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(message, name, getattr(message, name))


def test_equal_points_are_one_point() -> None:
    written_out = Point(precision="bf16", zero_stage=0, offload="none", lora_rank=0, checkpoint_fraction=0)
    assert written_out == Point()
    assert len({written_out, Point(), Point(zero_stage=1)}) == 2


@pytest.mark.parametrize(
    "values",
    [
        {"micro_batch_size": 0},
        {"gradient_accumulation_steps": 0},
        {"checkpoint_fraction": 1.01},
        {"checkpoint_fraction": -0.1},
        {"zero_stage": 4},
        {"offload": "parameters"},
        {"precision": "tf32"},
        {"lora_rank": -1},
        {"optimizer": "sgd"},
        {"attention": "flash"},
        {"zero_bucket_elements": 0},
    ],
    ids=str,
)
def test_a_point_holds_only_values_of_its_fields(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(values))):
        Point(**values)


@pytest.mark.parametrize(
    ("values", "method"),
    [
        ({}, "full"),
        ({"lora_rank": 8}, "lora"),
        ({"lora_rank": 8, "quantization": "nf4"}, "qlora"),
        ({"lora_rank": 8, "quantization": "int8"}, "qlora"),
    ],
    ids=str,
)
def test_rank_and_quantization_tell_the_method(values: dict[str, Any], method: str) -> None:
    assert Point(**values).method == method
