from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from autotune.models import find_card, list_cards, model_limits, resolve_model
from autotune.models.card import Card

# Read by the architecture's model code with getattr, without a field in its configuration class.
UNDECLARED_KEYS = {"qwen3_moe": {"head_dim"}}
TINY = ("tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-moe")

# Shapes under which the H200 measurements were made: hidden, intermediate, layers, heads, key-value heads,
# vocabulary, positions, tied head.
MEASURED_SHAPES = {
    "qwen2.5-0.5b": ("qwen2", 896, 4864, 24, 14, 2, 151936, 32768, True),
    "tinyllama-1.1b": ("llama", 2048, 5632, 22, 32, 4, 32000, 2048, False),
    "llama2-7b": ("llama", 4096, 11008, 32, 32, 32, 32000, 4096, False),
    "qwen2.5-1.5b": ("qwen2", 1536, 8960, 28, 12, 2, 151936, 32768, True),
}

# Written as on the hub before transformers 5 renamed the rotary parameters.
HUB_CONFIGS: dict[str, dict[str, Any]] = {
    "llama3.1-8b": {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "llama2-7b": {"rope_scaling": None},
    "qwen2.5-7b": {"rope_theta": 1000000.0},
    "gemma3-1b": {"rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window_pattern": 6},
    "pythia-1b": {"rotary_emb_base": 10000, "rotary_pct": 0.25},
    "phi-2": {"rope_theta": 10000.0, "partial_rotary_factor": 0.4},
    "olmo2-7b": {"rope_theta": 500000, "rope_scaling": None},
}


def test_every_family_that_was_promised_is_there() -> None:
    assert len(list_cards()) >= 45
    names = {card.name for card in list_cards()}
    assert {*TINY, "llama2-70b", "llama3-8b", "llama3.1-70b", "llama3.2-1b", "llama3.3-70b"} <= names
    assert {"qwen2.5-72b", "qwen3-32b", "qwen3-30b-a3b", "mistral-7b", "mixtral-8x7b", "gemma2-27b"} <= names
    assert {"gemma3-1b", "phi-3-mini", "phi-4", "smollm2-135m", "tinyllama-1.1b", "olmo2-13b"} <= names
    assert {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "opt-6.7b", "pythia-12b", "falcon-7b"} <= names
    assert {"deepseek-r1-distill-qwen-32b", "deepseek-r1-distill-llama-70b"} <= names


def test_the_models_build_with_exactly_the_published_parameters() -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    counted: dict[str, int] = {}
    for card in list_cards():
        shape = json.dumps(card.config, sort_keys=True)
        if shape not in counted:
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**card.config))
            counted[shape] = sum(parameter.numel() for parameter in model.parameters())
        difference = abs(counted[shape] - card.parameters)
        assert difference <= card.parameters_tolerance * card.parameters, (
            f"{card.name}: {counted[shape]:,} built, {card.parameters:,} published"
        )


def test_an_inexact_count_says_so_in_its_source() -> None:
    assert [card.name for card in list_cards() if card.parameters_tolerance] == ["gpt-j-6b"]
    assert all("http" in card.parameters_source for card in list_cards() if card.hub_id is not None)
    assert all("arithmetic" in card.parameters_source for card in list_cards() if card.hub_id is None)


def test_transformers_reads_every_key_of_a_card_as_it_stands() -> None:
    from transformers import AutoConfig

    for card in list_cards():
        config = AutoConfig.for_model(**card.config)
        known = {field.name for field in dataclasses.fields(type(config))} | {"model_type"}
        known |= UNDECLARED_KEYS.get(card.config["model_type"], set())
        assert set(card.config) <= known | set(type(config).attribute_map), card.name
        for key, value in card.config.items():
            assert getattr(config, key) == value, f"{card.name}: {key}"


@pytest.mark.parametrize("name", sorted(HUB_CONFIGS))
def test_rotary_parameters_are_what_transformers_makes_of_the_hubs_spelling(name: str) -> None:
    from transformers import AutoConfig

    card = find_card(name)
    assert card is not None
    generated = ("rope_parameters", "layer_types")
    on_the_hub = {key: value for key, value in card.config.items() if key not in generated} | HUB_CONFIGS[
        name
    ]
    expected = AutoConfig.for_model(**on_the_hub)
    shipped = AutoConfig.for_model(**card.config)
    assert shipped.rope_parameters == expected.rope_parameters
    assert getattr(shipped, "layer_types", None) == getattr(expected, "layer_types", None)


@pytest.mark.parametrize("name", sorted(MEASURED_SHAPES))
def test_the_measured_models_keep_their_shapes(name: str) -> None:
    config = resolve_model(name).config
    keys = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    )
    keys += ("vocab_size", "max_position_embeddings", "tie_word_embeddings")
    assert (config["model_type"], *(config[key] for key in keys)) == MEASURED_SHAPES[name]


@pytest.mark.parametrize("name", TINY)
def test_tiny_models_are_small_and_fit_for_every_knob(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    card = find_card(name)
    assert card is not None
    limits = model_limits(resolve_model(name))
    assert 2_000_000 <= card.parameters <= 8_000_000
    assert 4 <= limits.num_layers <= 8
    assert 2048 <= limits.vocab_size <= 8192
    assert limits.max_seq_len is not None and limits.max_seq_len >= 1024
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**card.config))
    linear = [module for module in model.modules() if type(module).__name__ in ("Linear", "Conv1D")]
    assert linear
    assert all(size % 64 == 0 for module in linear for size in module.weight.shape)


def test_the_tiny_mixture_of_experts_routes_to_a_part_of_its_experts() -> None:
    config = resolve_model("tiny-moe").config
    assert 1 < config["num_experts_per_tok"] < config["num_local_experts"]


def test_a_card_answers_to_its_name_and_all_its_hub_ids_in_any_case() -> None:
    for card in list_cards():
        for name in (card.name, *card.hub_ids):
            assert find_card(name.upper()) is card
    assert find_card("Qwen/Qwen2.5-7B-Instruct") is find_card("qwen2.5-7b")
    assert find_card("nosuch") is None


def test_a_card_is_named_after_its_file_and_refuses_unknown_keys() -> None:
    card = find_card("gpt2")
    assert card is not None
    with pytest.raises(ValueError, match="colour"):
        Card.model_validate({**card.model_dump(), "colour": "red"})
    assert all(card.name == card.name.lower() for card in list_cards())


def test_cards_and_their_limits_need_neither_torch_nor_transformers_nor_the_hub() -> None:
    script = (
        "import sys\n"
        "from autotune.models import list_cards, model_limits, resolve_model\n"
        "for card in list_cards():\n"
        "    assert model_limits(resolve_model(card.name)).max_seq_len == card.seq_len_max\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'optuna'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
