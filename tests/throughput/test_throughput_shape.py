"""The sizes read from configurations are those of the models."""

from __future__ import annotations

import pytest

from autotune.models import resolve_model
from autotune.throughput.shape import shape_of

# As their publishers (or transformers, counting) give them.
PARAMETERS = {
    "qwen2.5-1.5b": 1_543_714_304,
    "llama2-7b": 6_738_415_616,
    "llama3.2-3b": 3_212_749_824,
    "gpt2": 124_439_808,
    "pythia-1b": 1_011_781_632,
    "opt-1.3b": 1_315_758_080,
    "gemma2-2b": 2_614_341_888,
    "falcon-7b": 6_921_720_704,
    "phi-2": 2_779_683_840,
    "mixtral-8x7b": 46_702_792_704,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_matrices_make_up_the_model(name: str) -> None:
    # Norms, biases and learned positions are left out: below a hundredth of the smallest.
    assert shape_of(resolve_model(name)).total_parameters == pytest.approx(PARAMETERS[name], rel=0.008)


def test_a_token_passes_through_some_experts_only() -> None:
    # Mixtral's paper: 13 of 47 billion parameters are active.
    shape = shape_of(resolve_model("mixtral-8x7b"))
    active = shape.layers * shape.active_parameters + 2 * shape.head_parameters
    assert active == pytest.approx(12.9e9, rel=0.01)


def test_an_unknown_architecture_is_scaled_to_its_counted_parameters() -> None:
    model = resolve_model("llama2-7b")
    counted = int(1.1 * PARAMETERS["llama2-7b"])
    assert shape_of(model, counted).total_parameters == pytest.approx(counted, rel=1e-6)


def test_adapters_sit_on_what_is_named() -> None:
    shape = shape_of(resolve_model("llama2-7b"))
    assert len(shape.adapted(None)) == 7
    assert [matrix.name for matrix in shape.adapted(("q_proj", "layers.3.v_proj"))] == ["q_proj", "v_proj"]
    assert shape.adapted(("Wqkv",)) == shape.matrices
