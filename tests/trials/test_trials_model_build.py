"""A model built module by module is the one transformers builds: shapes, precision, ties, buffers, values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from autotune.models import resolve_model
from trials.model_build import DTYPES, InvalidPoint, build_model, transformers_config
from trials.wire import ModelSpec, Point, Precision

CPU = torch.device("cpu")


def ordinary(spec: ModelSpec, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(transformers_config(spec), dtype=dtype)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_parameters_are_those_of_an_ordinary_model(tiny: ModelSpec, precision: Precision) -> None:
    torch.manual_seed(0)
    built = build_model(tiny, Point(precision=precision), device=CPU)
    expected = {n: (p.shape, p.dtype) for n, p in ordinary(tiny, DTYPES[precision]).named_parameters()}
    assert {n: (p.shape, p.dtype) for n, p in built.named_parameters()} == expected
    assert {p.dtype for p in built.parameters()} == {DTYPES[precision]}
    assert all(p.requires_grad for p in built.parameters())
    assert not any(t.is_meta for t in [*built.parameters(), *built.buffers()])
    assert all(bool(torch.isfinite(p).all()) for p in built.parameters())


def test_values_are_drawn_as_transformers_draws_them(tiny: ModelSpec) -> None:
    torch.manual_seed(0)
    built = dict(build_model(tiny, Point(precision="fp32"), device=CPU).named_parameters())
    for name, parameter in ordinary(tiny, torch.float32).named_parameters():
        mine = built[name]
        if parameter.std() == 0 or parameter.numel() == 1:
            # Norms are ones, biases zeros.
            assert torch.equal(mine, parameter), name
        else:
            assert float(mine.detach().std()) == pytest.approx(float(parameter.detach().std()), rel=0.1), name
            assert (
                abs(float(mine.detach().mean()))
                < 5 * float(parameter.detach().std()) / parameter.numel() ** 0.5
            ), name


def test_no_two_parameters_hold_the_same_draw(tiny: ModelSpec) -> None:
    built = build_model(tiny, Point(precision="fp32"), device=CPU)
    drawn = [p.flatten()[:8] for p in built.parameters() if p.std() > 0]
    assert len({tuple(values.tolist()) for values in drawn}) == len(drawn)


def test_the_seed_decides_the_values(tiny: ModelSpec) -> None:
    built = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        built.append(build_model(tiny, Point(), device=CPU).get_input_embeddings().weight)
    assert torch.equal(built[0], built[1])
    assert not torch.equal(built[0], built[2])


def test_buffers_are_those_of_an_ordinary_model(tiny: ModelSpec) -> None:
    built = dict(build_model(tiny, Point(), device=CPU).named_buffers())
    expected = dict(ordinary(tiny, torch.bfloat16).named_buffers())
    assert built.keys() == expected.keys()
    for name, buffer in expected.items():
        assert built[name].dtype == buffer.dtype, name
        assert torch.equal(built[name], buffer), name


def test_tied_weights_are_one_storage_and_others_are_not(tiny: ModelSpec) -> None:
    built = build_model(tiny, Point(), device=CPU)
    head, embedding = built.get_output_embeddings().weight, built.get_input_embeddings().weight
    assert (head is embedding) == tiny.config["tie_word_embeddings"]
    storages = {p.untyped_storage().data_ptr() for p in built.parameters()}
    assert len(storages) == len(list(built.parameters()))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_attention_is_the_points(tiny: ModelSpec, attention: Any) -> None:
    built = build_model(tiny, Point(attention=attention), device=CPU)
    assert built.config._attn_implementation == attention
    assert built.config.use_cache is False


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-moe"])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_real_weights_are_loaded_as_they_are(
    saved: Callable[[str], ModelSpec], name: str, precision: Precision
) -> None:
    from safetensors.torch import load_file

    spec = saved(name)
    built = build_model(spec, Point(precision=precision), device=CPU)
    assert spec.weights is not None
    on_disk = load_file(f"{spec.weights}/model.safetensors")
    mine = dict(built.named_parameters())
    same = [key for key in on_disk if key in mine]
    # A mixture of experts is saved expert by expert and computed in one piece: those names differ.
    assert len(same) >= 10
    for key in same:
        assert mine[key].dtype == DTYPES[precision]
        assert torch.equal(mine[key].bfloat16(), on_disk[key].bfloat16()), key
    assert built.config.use_cache is False


def test_a_stored_quantization_is_left_out() -> None:
    spec = resolve_model("tiny-llama")
    stored = {**spec.config, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    built = build_model(spec.model_copy(update={"config": stored}), Point(), device=CPU)
    assert {p.dtype for p in built.parameters()} == {torch.bfloat16}


def test_an_unknown_model_type_is_refused_by_name() -> None:
    with pytest.raises(InvalidPoint, match="'nosuch'"):
        build_model(ModelSpec(name="x", config={"model_type": "nosuch"}), Point(), device=CPU)
    with pytest.raises(InvalidPoint, match="None"):
        build_model(ModelSpec(name="x", config={}), Point(), device=CPU)


def test_a_model_that_is_no_causal_language_model_is_refused() -> None:
    with pytest.raises(InvalidPoint, match="AutoModelForCausalLM"):
        build_model(ModelSpec(name="x", config={"model_type": "t5"}), Point(), device=CPU)


def test_an_attention_that_is_not_installed_is_refused() -> None:
    with pytest.raises(InvalidPoint, match=r"[Ff]lash"):
        build_model(resolve_model("tiny-llama"), Point(attention="flash_attention_2"), device=CPU)


def test_the_description_of_the_model_is_not_changed(tiny: ModelSpec) -> None:
    before = tiny.model_dump_json()
    build_model(tiny, Point(), device=CPU)
    assert tiny.model_dump_json() == before
