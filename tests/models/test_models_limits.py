from __future__ import annotations

from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.models import ModelLimits, model_limits, resolve_model
from trials.wire import ModelSpec


def limits_of(config: dict[str, Any]) -> ModelLimits:
    return model_limits(ModelSpec(name="a model", config=config, weights=None))


def test_gpt2_names_its_layers_and_positions_its_own_way() -> None:
    assert model_limits(resolve_model("gpt2-xl")) == ModelLimits(1024, 48, 50257, 1024)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"model_type": "gpt_neo", "num_layers": 12, "max_position_embeddings": 2048, "vocab_size": 9},
            (2048, 12, 9),
        ),
        ({"model_type": "mpt", "n_layers": 32, "max_seq_len": 512, "vocab_size": 9}, (512, 32, 9)),
        ({"model_type": "bloom", "n_layer": 24, "vocab_size": 250880}, (None, 24, 250880)),
        ({"model_type": "mamba", "num_hidden_layers": 24, "vocab_size": 50280}, (None, 24, 50280)),
        (
            {"model_type": "falcon", "num_hidden_layers": 3, "vocab_size": 9, "alibi": True}
            | {"max_position_embeddings": 2048},
            (None, 3, 9),
        ),
    ],
)
def test_each_architecture_is_read_under_its_own_keys(
    config: dict[str, Any], expected: tuple[int | None, int, int]
) -> None:
    limits = limits_of(config)
    assert (limits.max_seq_len, limits.num_layers, limits.vocab_size) == expected


@pytest.mark.parametrize(("positions", "default"), [(512, 512), (1024, 1024), (131072, 1024)])
def test_the_default_sequence_is_1024_tokens_or_the_models_maximum(positions: int, default: int) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "vocab_size": 9,
        "max_position_embeddings": positions,
    }
    assert limits_of(config).default_seq_len == default


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({"rope_type": "default", "rope_theta": 1e4}, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "linear", "factor": 2.0}, 65536),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, 32768),
        ({"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {}}, 262144),
    ],
)
def test_rotary_scaling_that_stretches_the_trained_length_counts(rope: dict[str, Any], expected: int) -> None:
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 2,
        "vocab_size": 9,
        "max_position_embeddings": 32768,
    }
    assert limits_of({**config, "rope_parameters": rope}).max_seq_len == expected


def test_what_a_configuration_leaves_out_is_its_architectures_default() -> None:
    # OPTConfig's documented defaults.
    assert limits_of({"model_type": "opt"}) == ModelLimits(2048, 12, 50272, 1024)


@pytest.mark.parametrize("layers", [0, -1, True])
def test_a_number_of_layers_that_is_none_is_a_usage_error(layers: object) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "vocab_size": 9,
        "max_position_embeddings": 9,
    }
    with pytest.raises(UsageError):
        limits_of(config)


def test_a_value_that_transformers_refuses_is_a_usage_error_that_names_it() -> None:
    with pytest.raises(UsageError, match="num_hidden_layers"):
        limits_of({"model_type": "llama", "num_hidden_layers": "two"})
