"""`autotune.apply` makes of a loaded model what a trial builds, and refuses what it cannot."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from records import write_record
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import autotune
from autotune.errors import UsageError
from autotune.models import resolve_model
from trials.adapters import add_adapters
from trials.checkpointing import set_checkpoint_fraction
from trials.model_build import build_model, transformers_config
from trials.quantize import bitsandbytes_settings, keep_layout
from trials.wire import Point

TOKENS = torch.arange(32).view(2, 16)


def fresh(name: str = "tiny-llama", dtype: torch.dtype = torch.bfloat16) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(transformers_config(resolve_model(name)), dtype=dtype)


def summary(model: Any) -> dict[str, tuple[Any, ...]]:
    return {n: (tuple(p.shape), p.dtype, p.requires_grad) for n, p in model.named_parameters()}


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_a_loaded_model_becomes_what_a_trial_builds(quantization: str, tmp_path: Path) -> None:
    point = Point(lora_rank=16, checkpoint_fraction=0.5, quantization=quantization, zero_stage=2)
    record = write_record(tmp_path, **point.model_dump())
    built = add_adapters(
        build_model(resolve_model("tiny-llama"), point, device=torch.device("cpu")), point, None
    )
    set_checkpoint_fraction(built, 0.5)

    model, ds_config = autotune.apply(fresh(), record)

    assert summary(model) == summary(built)
    recomputed = [layer.gradient_checkpointing for layer in model.get_base_model().model.layers]
    assert recomputed == [True, True, False, False]
    assert model.training
    assert ds_config == json.loads(record.read_text())["trial"]["ds_config"]
    assert ds_config["zero_optimization"]["stage"] == 2


@pytest.mark.parametrize(
    ("name", "quantization"), [("tiny-llama", "nf4"), ("tiny-llama", "int8"), ("tiny-gpt2", "nf4")]
)
def test_a_model_quantised_after_loading_computes_what_transformers_own_loading_makes(
    name: str, quantization: str, tmp_path: Path
) -> None:
    point = Point(lora_rank=8, quantization=quantization)
    fresh(name).save_pretrained(tmp_path / "weights")
    settings = BitsAndBytesConfig(**bitsandbytes_settings(point))
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path / "weights", dtype=torch.bfloat16, quantization_config=settings
    )
    # bitsandbytes would pack the weights for the CPU's own instructions, which round otherwise.
    keep_layout(theirs)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "weights", dtype=torch.bfloat16)

    # Adapters begin as zero.
    ours, _ = autotune.apply(loaded, write_record(tmp_path / "out", name, **point.model_dump()))
    ours.eval()

    with torch.no_grad():
        assert torch.equal(ours(TOKENS).logits, theirs(TOKENS).logits)


def test_full_fine_tuning_trains_everything_in_the_measured_precision(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model, _ = autotune.apply(fresh(dtype=torch.float32), write_record(tmp_path, checkpoint_fraction=1.0))

    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert all(p.requires_grad for p in model.parameters())
    assert "torch.bfloat16" in caplog.text


def test_a_folder_will_do_and_a_model_that_is_quantised_already_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    point = Point(lora_rank=8, quantization="nf4")
    write_record(tmp_path, **point.model_dump())
    quantised = build_model(resolve_model("tiny-llama"), point, device=torch.device("cpu"))
    before = quantised.model.layers[0].mlp.up_proj.weight

    with caplog.at_level(logging.WARNING):
        model, _ = autotune.apply(quantised, tmp_path)

    assert model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight is before
    assert "quantised already" in caplog.text


def test_another_attention_is_set_on_the_built_model(tmp_path: Path) -> None:
    model, _ = autotune.apply(fresh(), write_record(tmp_path, attention="eager"))
    assert model.config._attn_implementation == "eager"


def test_with_more_processes_the_whole_batch_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    _, ds_config = autotune.apply(
        fresh(), write_record(tmp_path, micro_batch_size=4, gradient_accumulation_steps=3)
    )
    assert ds_config["train_batch_size"] == 4 * 3 * 2


def test_what_the_configuration_file_cannot_say_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        autotune.apply(fresh(), write_record(tmp_path, optimizer="adamw8bit"))
    assert "AdamW8bit" in caplog.text


def refused(model: Any, where: Path) -> str:
    with pytest.raises(UsageError) as caught:
        autotune.apply(model, where)
    return str(caught.value)


def test_a_model_that_does_not_suit_is_refused_in_words(tmp_path: Path) -> None:
    llama, four_bit = fresh(), Point(lora_rank=8, quantization="nf4")
    write_record(tmp_path, lora_rank=8)

    assert "family llama, and this one is gpt2" in refused(fresh("tiny-gpt2"), tmp_path)
    assert "not a model of transformers" in refused(torch.nn.Linear(2, 2), tmp_path)
    quantised = build_model(resolve_model("tiny-llama"), four_bit, device=torch.device("cpu"))
    assert "loaded in 4 bits" in refused(quantised, tmp_path)
    adapted, _ = autotune.apply(llama, tmp_path)
    assert "adapters already" in refused(adapted, tmp_path)


def test_a_file_that_is_none_of_ours_is_refused_in_words(tmp_path: Path) -> None:
    record = write_record(tmp_path)
    known = json.loads(record.read_text())

    def with_content(text: str) -> Path:
        (tmp_path / "other.json").write_text(text)
        return tmp_path / "other.json"

    assert "there is no" in refused(None, tmp_path / "nosuch.json")
    assert "there is no" in refused(None, tmp_path / "nosuch" / "autotune.json")
    assert "not JSON" in refused(None, with_content("{"))
    assert "not what autotune writes" in refused(None, with_content('{"a": 1}'))
    newer = json.dumps({**known, "format_version": 99})
    assert "newer autotune (format 99" in refused(None, with_content(newer))
    point = {**known["point"], "zero_stage": 7}
    assert "point.zero_stage" in refused(None, with_content(json.dumps({**known, "point": point})))
    known.pop("model")
    assert "model is missing" in refused(None, with_content(json.dumps(known)))


def test_importing_autotune_loads_no_torch() -> None:
    asked = "import sys, autotune; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
