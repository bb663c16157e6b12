"""The same inputs are the same study, other inputs another."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from autotune.study import StudyInputs


def test_the_name_is_readable_and_decided_by_the_inputs(inputs: StudyInputs) -> None:
    assert re.fullmatch(r"tiny-llama-lora-1GiB-[0-9a-f]{6}", inputs.study_name())
    again = StudyInputs.model_validate(inputs.model_dump(mode="json"))
    assert again == inputs and again.study_name() == inputs.study_name()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "tiny-qwen2"},
        {"model_digest": "x"},
        {"method": "full"},
        {"seq_len": 256},
        {"global_batch": None},
        {"exact_global_batch": True},
        {"budget_bytes": 2**30 + 1},
        {"host_budget_bytes": 2**34},
        {"device": "cuda"},
        {"gpu_name": "H200"},
        {"gpus": 2},
        {"space_name": "quick"},
        {"space_digest": "x"},
        {"min_rank": 8},
        {"lora_targets": ("q_proj",)},
        {"trainer": "trl"},
        {"load_weights": True},
        {"nvme_path": "/nvme"},
    ],
)
def test_every_input_decides_the_study(inputs: StudyInputs, change: dict[str, Any]) -> None:
    other = inputs.model_copy(update=change)
    assert other.study_name() != inputs.study_name()
    assert other.differences(inputs) == tuple(change)
    assert set(StudyInputs.model_fields) >= set(change)


@pytest.mark.parametrize(
    ("model", "budget_bytes", "start"),
    [
        ("Qwen/Qwen2.5-7B", 24 * 2**30, "qwen2.5-7b-lora-24GiB-"),
        ("./models/My Model/", 3 * 2**29, "my-model-lora-1536MiB-"),
        ("/data/llama/config.json", 10**9, "llama-lora-953.7MiB-"),
        ("C:\\models\\gpt2", 2 * 10**9, "gpt2-lora-1.9GiB-"),
        ("../..", 2**30, "model-lora-1GiB-"),
        ("模型", 2**30, "model-lora-1GiB-"),
    ],
)
def test_any_model_name_makes_a_name_that_needs_no_quoting(
    inputs: StudyInputs, model: str, budget_bytes: int, start: str
) -> None:
    name = inputs.model_copy(update={"model": model, "budget_bytes": budget_bytes}).study_name()
    assert name.startswith(start)
    assert re.fullmatch(r"[A-Za-z0-9.-]+", name)


def test_long_model_names_are_cut(inputs: StudyInputs) -> None:
    assert len(inputs.model_copy(update={"model": "x" * 500}).study_name()) < 80


def test_unknown_inputs_are_refused(inputs: StudyInputs) -> None:
    with pytest.raises(ValidationError):
        StudyInputs.model_validate(inputs.model_dump() | {"colour": "red"})
