"""The studies that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from reuse_samples import profile

from autotune.models import find_card
from autotune.reuse.observations import speed_of
from autotune.reuse.shipped import FOLDER, PREFIX, ShippedStudies
from autotune.reuse.survey import similar_studies
from trials.wire import Outcome

NAMES = sorted(ShippedStudies().heads)


@pytest.fixture
def nothing(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'none.db'}"


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_study_says_what_it_measured_and_where(name: str) -> None:
    head, records = ShippedStudies().heads[name], ShippedStudies().records(name)
    assert name.startswith(PREFIX) and head.inputs.model in name
    assert head.machine is not None and head.machine.gpu_name == head.inputs.gpu_name
    assert head.machine.versions.keys() >= {"torch", "transformers", "deepspeed"}
    assert len(records) >= 10 and any(speed_of(record) for record in records)
    for record in records:
        assert record.result is not None
        if record.result.outcome is Outcome.OK and record.point.lora_rank == 0:
            assert record.result.total_parameters == find_card(head.inputs.model).parameters
        if record.result.outcome is Outcome.OK:
            assert record.result.required_device_bytes is not None
            assert record.result.required_device_bytes <= head.inputs.budget_bytes


def test_they_are_small_and_tell_nothing_of_the_machine_they_came_from() -> None:
    texts = [file.read_text() for file in (files("autotune.reuse") / FOLDER).iterdir()]
    assert sum(map(len, texts)) < 500_000
    assert not any(
        path in text for text in texts for path in ("/tmp", "/home", "/root", "sqlite:", "--storage")
    )


def test_a_first_search_learns_from_them(nothing: str) -> None:
    target = profile(model="qwen2.5-3b", cpus=16)
    found = similar_studies(nothing, target, "x", "auto")
    assert found.similar and found.similar[0].study.startswith(f"{PREFIX}qwen2.5-1.5b-lora")
    assert 0.3 < found.similar[0].trust < 1
    assert found.looked_at == len(NAMES)


def test_they_can_be_left_out_or_named(nothing: str) -> None:
    assert similar_studies(nothing, profile(), "x", "own").similar == ()
    [one] = similar_studies(nothing, profile(), "x", (NAMES[0],)).similar
    assert one.study == NAMES[0]


def test_on_the_cpu_nothing_of_a_gpu_is_learned(nothing: str) -> None:
    assert similar_studies(nothing, profile(device="cpu", gpu_name=None), "x", "auto").similar == ()
