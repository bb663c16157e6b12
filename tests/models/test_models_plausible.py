"""Sizes that no model can have are refused from the configuration, with the key that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.models import list_cards, resolve_model
from autotune.models.config import causal_lm_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 512,
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -64),
        ("hidden_size", 0),
        ("hidden_size", 10**9),
        ("num_attention_heads", 0),
        ("num_key_value_heads", -1),
        ("intermediate_size", -2.5),
        ("intermediate_size", 10**9),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10_000_000),
        ("vocab_size", -1),
        ("vocab_size", 10**12),
    ],
)
def test_an_impossible_size_is_refused_by_its_name(tmp_path: Path, key: str, value: float) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, key: value}))
    with pytest.raises(UsageError, match=f"{key} ") as refused:
        resolve_model(str(file))
    assert "config.json" in refused.value.hint


@pytest.mark.parametrize("values", [{}, {"num_key_value_heads": None}, {"intermediate_size": [128, 64]}])
def test_sizes_that_are_left_out_or_no_numbers_are_not_judged(values: dict[str, Any]) -> None:
    assert causal_lm_config({**LLAMA, **values}, "mine") == {**LLAMA, **values}


def test_the_text_part_of_a_multimodal_model_is_what_is_judged() -> None:
    text = {**LLAMA, "model_type": "gemma3_text", "hidden_size": -1}
    with pytest.raises(UsageError, match="hidden_size -1"):
        causal_lm_config({"model_type": "gemma3", "text_config": text}, "mine")


def test_no_published_model_is_refused() -> None:
    cards = list_cards()
    assert len(cards) > 80
    for card in cards:
        causal_lm_config(card.config, card.name)
