from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.models import list_cards, model_limits, resolve_model, resolve_with_notes

LLAMA = {"model_type": "llama", "num_hidden_layers": 3, "vocab_size": 100, "max_position_embeddings": 512}


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is not local stays unknown; constants are read at the hub library's import, so both are set."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def write_config(folder: Path, config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return file


def refusal_of(name: str, *, weights: bool = False) -> str:
    with pytest.raises(UsageError) as caught:
        resolve_model(name, weights=weights)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return str(caught.value)


def test_a_card_is_found_by_name_and_by_hub_id_without_a_network() -> None:
    by_name, by_hub_id = resolve_model("QWEN2.5-7b"), resolve_model("qwen/qwen2.5-7b-instruct")
    assert (by_name.name, by_hub_id.name) == ("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct")
    assert by_name.config == by_hub_id.config
    assert by_name.weights is None and by_hub_id.weights is None


def test_weights_of_a_card_are_those_of_the_hub_id_that_was_named() -> None:
    assert resolve_model("qwen2.5-7b", weights=True).weights == "Qwen/Qwen2.5-7B"
    assert resolve_model("qwen/qwen2.5-7B-instruct", weights=True).weights == "Qwen/Qwen2.5-7B-Instruct"


def test_changing_a_resolved_configuration_leaves_the_card_alone() -> None:
    resolve_model("llama3.1-8b").config["rope_parameters"]["factor"] = 1.0
    assert resolve_model("llama3.1-8b").config["rope_parameters"]["factor"] == 8.0


def test_a_shape_without_weights_cannot_load_any() -> None:
    assert "--load-weights" in refusal_of("tiny-llama", weights=True)


def test_a_folder_and_its_config_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_config(tmp_path / "mine", LLAMA)
    assert resolve_model(str(file)).config == LLAMA
    assert resolve_model(str(file.parent)).config == LLAMA
    monkeypatch.chdir(tmp_path)
    assert resolve_model("mine").name == "mine"
    assert resolve_model("./mine/config.json").config == LLAMA
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/mine").config == LLAMA


def test_a_folder_wins_over_a_card_only_if_it_holds_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert resolve_model("gpt2").config["model_type"] == "gpt2"
    write_config(tmp_path / "gpt2", LLAMA)
    assert resolve_model("gpt2").config["model_type"] == "llama"


def test_weights_of_a_folder_are_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_config(tmp_path / "mine", LLAMA).parent
    assert "no weights" in refusal_of(str(folder), weights=True)
    (folder / "adapter_model.safetensors").touch()
    assert "no weights" in refusal_of(str(folder), weights=True)
    (folder / "model-00001-of-00002.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("mine", weights=True).weights == str(folder.resolve())
    assert "folder" in refusal_of(str(folder / "config.json"), weights=True)


def test_quantized_weights_are_refused_and_the_shape_alone_is_taken(tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    folder = write_config(tmp_path, config).parent
    (folder / "model.safetensors").touch()
    assert resolve_model(str(folder)).config == LLAMA
    assert "quantized" in refusal_of(str(folder), weights=True)


def test_nothing_in_a_configuration_makes_transformers_run_code(tmp_path: Path) -> None:
    code = {
        "auto_map": {"AutoConfig": "evil.Config"},
        "_attn_implementation": "someone/kernels",
        "_name_or_path": "x",
    }
    assert resolve_model(str(write_config(tmp_path, {**LLAMA, **code}))).config == LLAMA


@pytest.mark.parametrize(
    "config", [{"model_type": "baichuan"}, {}], ids=["an unknown architecture", "no architecture"]
)
def test_a_model_that_needs_its_own_code_is_refused_and_told_why(
    config: dict[str, Any], tmp_path: Path
) -> None:
    text = refusal_of(str(write_config(tmp_path, {**config, "auto_map": {"AutoConfig": "modeling.Config"}})))
    assert "code" in text and "not run" in text


def test_of_a_multimodal_model_the_text_part_is_taken(tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    vision = {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"}
    folder = write_config(
        tmp_path, {"model_type": "gemma3", "text_config": text, "vision_config": vision}
    ).parent
    spec = resolve_model(str(folder))
    assert spec.config == text
    assert model_limits(spec).num_layers == 34
    (folder / "model.safetensors").touch()
    assert "text part" in refusal_of(str(folder), weights=True)


def test_the_text_part_inherits_what_is_said_once_for_the_whole_model(tmp_path: Path) -> None:
    config = {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": {"num_hidden_layers": 2}}
    assert resolve_model(str(write_config(tmp_path, config))).config == {
        "model_type": "gemma3_text",
        "num_hidden_layers": 2,
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "bart"}, "encoder-decoder"),  # AutoModelForCausalLM would build half of it
        ({"model_type": "bert", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "clip"}, "not a causal language model"),
        ({"model_type": "deberta"}, "not a causal language model"),
        ({"model_type": ["llama"]}, "no model_type"),
        ({"peft_type": "LORA", "base_model_name_or_path": "x/base"}, "x/base"),
        ([1, 2], "not a JSON object"),
        ("{nope", "not valid JSON"),
        ('{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}', "Infinity"),
        ("[" * 100_000, "not valid JSON"),
        ("", "not valid JSON"),
    ],
)
def test_what_is_no_causal_language_model_is_refused(config: object, words: str, tmp_path: Path) -> None:
    assert words in refusal_of(str(write_config(tmp_path, config)))


def test_files_and_folders_that_are_no_model_say_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "config.json").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").touch()
    assert "weights" in refusal_of(str(tmp_path / "model.gguf"))
    assert "not text" in refusal_of(str(tmp_path / "latin"))
    assert "adapter" in refusal_of(str(tmp_path / "adapter"))
    assert "no config.json" in refusal_of(str(tmp_path))
    assert "no file or folder" in refusal_of(str(tmp_path / "nosuch"))
    assert "no file or folder" in refusal_of("nosuch.json")


def test_a_byte_order_mark_does_not_disturb(tmp_path: Path) -> None:
    assert resolve_model(str(write_config(tmp_path, "\ufeff" + json.dumps(LLAMA)))).config == LLAMA


@pytest.mark.parametrize(
    "name", ["", "  ", "two words", "--model", "x\0y", "a" * 5000, "~nosuchuser/x", "a//b", "a/.b"]
)
def test_names_that_cannot_be_a_model_are_refused_without_asking_the_hub(name: str) -> None:
    assert "hub cannot be reached" not in refusal_of(name)


def test_a_misspelt_card_brings_the_close_ones_to_mind() -> None:
    assert "tiny-llama" in refusal_of("tiny-lama")
    assert "Qwen/Qwen2.5-7B-Instruct" in refusal_of("Qwen/Qwen2.5-7B-Instrct")


def test_offline_an_unknown_hub_id_says_what_works_without_a_network() -> None:
    text = refusal_of("someone/something")
    assert "cannot be reached" in text and "autotune models" in text


def test_every_card_resolves_to_itself() -> None:
    for card in list_cards():
        assert resolve_model(card.name).config == card.config


@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra", "xlm-roberta"])
def test_an_encoder_is_refused_unless_it_was_trained_as_a_decoder(model_type: str, tmp_path: Path) -> None:
    config = {"model_type": model_type, "num_hidden_layers": 2, "vocab_size": 100}

    assert "is an encoder" in refusal_of(str(write_config(tmp_path / "a", config)))
    decoder = write_config(tmp_path / "b", {**config, "is_decoder": True})
    assert resolve_model(str(decoder)).config["is_decoder"]


def test_what_is_left_out_of_a_configuration_is_said(tmp_path: Path) -> None:
    stored = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    multimodal = {"model_type": "llava", "text_config": LLAMA}

    _, quantized = resolve_with_notes(str(write_config(tmp_path / "a", stored)))
    _, text_only = resolve_with_notes(str(write_config(tmp_path / "b", multimodal)))

    assert len(quantized) == 1 and "stored quantized (gptq)" in quantized[0]
    assert len(text_only) == 1 and "text part" in text_only[0]
    assert resolve_with_notes(str(write_config(tmp_path / "c", LLAMA)))[1] == ()
    assert resolve_with_notes("tiny-llama")[1] == ()
