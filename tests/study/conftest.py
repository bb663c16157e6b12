"""A study about a tiny model, on real SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.study import StudyInputs


@pytest.fixture
def storage_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 's.db'}"


@pytest.fixture(scope="session")
def inputs() -> StudyInputs:
    return StudyInputs(
        model="tiny-llama",
        model_digest="0123",
        method="lora",
        seq_len=128,
        global_batch=8,
        budget_bytes=2**30,
        device="cpu",
        space_name="lora",
        space_digest="4567",
    )
