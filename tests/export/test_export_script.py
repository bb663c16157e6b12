from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from autotune.export import export_folder
from autotune.export.script import train_script
from trials.adapters import add_adapters
from trials.checkpointing import set_checkpoint_fraction
from trials.model_build import build_model
from trials.wire import ModelSpec, Point

GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def winners(make_winner: Any) -> dict[str, Any]:
    """A winner for every set of blocks that a script can have."""
    made = {}
    for stage, rank, quantization, optimizer, fraction, liger in itertools.product(
        (0, 3),
        (0, 8),
        ("none", "nf4"),
        ("adamw", "adamw8bit", "paged_adamw8bit"),
        (0.0, 0.5),
        (False, True),
    ):
        if quantization != "none" and rank == 0:
            continue
        for offload in ("none", "optimizer+parameters") if stage == 3 and optimizer == "adamw" else ("none",):
            point = {
                "zero_stage": stage,
                "offload": offload,
                "lora_rank": rank,
                "quantization": quantization,
                "optimizer": optimizer,
                "checkpoint_fraction": fraction,
                "liger_kernel": liger,
            }
            made["-".join(str(value) for value in point.values())] = make_winner(**point)
    return made


def test_every_script_passes_the_linter_and_the_formatter(make_winner: Any, tmp_path: Path) -> None:
    names = {}
    for name, winner in winners(make_winner).items():
        names[name] = train_script(winner)
        (tmp_path / f"{name}.py").write_text(names[name])
    assert len(names) > 50
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--no-cache", "--line-length", "110", "--target-version", "py311", str(tmp_path)]
    rules = ["--select", "E,F,I,B,UP,SIM,C4,PTH,RUF"]
    for command in ([*ruff, "check", *rules, *options], [*ruff, "format", "--check", *options]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_script_is_short_and_imports_only_what_it_uses(make_winner: Any) -> None:
    libraries = ("bitsandbytes", "peft", "liger_kernel", "BitsAndBytesConfig", "HfDeepSpeedConfig")
    for name, winner in winners(make_winner).items():
        script, point = train_script(winner), winner.point
        assert len(script.splitlines()) < 270, name
        assert "autotune" not in script.replace('"autotune.json"', ""), name
        expected = (
            point.optimizer != "adamw",
            point.lora_rank > 0,
            point.liger_kernel,
            point.quantization != "none",
            point.offload == "optimizer+parameters" and point.quantization == "none",
        )
        assert tuple(
            f"import {x}" in script or f"{x}(" in script or f"from {x}" in script for x in libraries
        ) == (expected), name


@pytest.fixture
def load_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Exports a winner and imports its script as a module."""

    def load(winner: Any) -> ModuleType:
        # The script sets these where they are missing; the test must not leave them behind.
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        if not torch.cuda.is_available():
            monkeypatch.setenv("DS_ACCELERATOR", "cpu")
        path = export_folder(winner, tmp_path / "out") / "train.py"
        spec = importlib.util.spec_from_file_location("exported_train", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def description(model: Any) -> dict[str, Any]:
    """What decides a model's memory and arithmetic, by name of parameter, buffer and module."""
    return {
        "parameters": {n: (p.shape, p.dtype, p.requires_grad, p.device) for n, p in model.named_parameters()},
        "buffers": {n: (b.shape, b.dtype, b.device) for n, b in model.named_buffers()},
        "modules": {n: type(m).__name__ for n, m in model.named_modules()},
        "recomputed": [n for n, m in model.named_modules() if getattr(m, "gradient_checkpointing", False)],
        "quantized": {
            n: (p.quant_state.quant_type, p.quant_state.nested, p.quant_state.dtype, p.quant_state.blocksize)
            for n, p in model.named_parameters()
            if getattr(p, "quant_state", None) is not None
        },
        "compute": {n: m.compute_dtype for n, m in model.named_modules() if hasattr(m, "compute_dtype")},
        "threshold": {
            n: m.state.threshold for n, m in model.named_modules() if hasattr(m, "init_8bit_state")
        },
        "attention": model.config._attn_implementation,
        "use_cache": model.config.use_cache,
        "training": model.training,
    }


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "point",
    [
        {},
        {"precision": "fp32", "checkpoint_fraction": 0.5, "attention": "eager"},
        {"lora_rank": 8, "checkpoint_fraction": 0.25},
        {"lora_rank": 8, "precision": "fp16", "checkpoint_fraction": 1.0},
        {"lora_rank": 4, "quantization": "nf4", "checkpoint_fraction": 0.75},
        {"lora_rank": 4, "quantization": "int8"},
    ],
)
def test_the_script_builds_the_model_that_was_measured(
    make_winner: Any, load_script: Any, architecture: str, point: dict[str, Any]
) -> None:
    winner = make_winner(**point)
    if architecture == "gpt2":
        winner = winner.model_copy(update={"model": ModelSpec(name="tiny-gpt2", config=GPT2)})
        targets = winner.result.model_copy(update={"lora_targets": ("c_attn", "c_fc", "c_proj")})
        winner = winner.model_copy(update={"result": targets})
    script, record = load_script(winner), json.loads(json.dumps({"model": {"config": winner.model.config}}))
    device = torch.device("cpu")

    measured = build_model(winner.model, winner.point, device=device)
    built = script.load_model({**record, "point": winner.point.model_dump()}, None, device)
    if winner.point.lora_rank:
        measured = add_adapters(measured, winner.point, None)
        built = script.add_adapters(built)
    set_checkpoint_fraction(measured, winner.point.checkpoint_fraction)
    if winner.point.checkpoint_fraction:
        script.recompute_first_layers(built, winner.point.checkpoint_fraction)
    measured.train()
    built.train()

    assert description(built) == description(measured)
    # Neither random model is nonsense: its loss on random tokens is that of a uniform guess, ln 256.
    if winner.point.precision != "fp16":
        tokens = torch.randint(0, 256, (2, 32))
        loss = built(input_ids=tokens, labels=tokens).loss.item()
        assert loss == pytest.approx(5.545, abs=0.2)


class Words:
    """A tokenizer of one token a word: its length."""

    eos_token_id: int | None = 0

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [len(word) for word in text.split()]}


def test_documents_are_packed_into_full_sequences(make_winner: Any, load_script: Any, tmp_path: Path) -> None:
    script = load_script(make_winner())
    plain = tmp_path / "a.txt"
    plain.write_text("a bb ccc\n\n   \ndddd eeeee\nf", encoding="utf-8")
    # 1 2 3 end, 4 5 end, 1 end: nine tokens, of which four sequences of two are full.
    assert script.packed_blocks(plain, "text", Words(), 2).tolist() == [[1, 2], [3, 0], [4, 5], [0, 1]]
    objects = tmp_path / "a.jsonl"
    objects.write_text('{"body": "a bb"}\n{"body": "é", "id": 3}\n', encoding="utf-8")
    assert script.packed_blocks(objects, "body", Words(), 5).tolist() == [[1, 2, 0, 1, 0]]
    with pytest.raises(SystemExit, match=r"a\.jsonl, line 1.*'text'"):
        script.packed_blocks(objects, "text", Words(), 5)
    with pytest.raises(SystemExit, match="5 tokens"):
        script.packed_blocks(objects, "body", Words(), 6)


def test_each_epoch_has_every_block_once_in_another_order(make_winner: Any, load_script: Any) -> None:
    script = load_script(make_winner())
    batches = script.shuffled_batches(torch.arange(12).view(12, 1), 5, 0)
    drawn = torch.cat([next(batches) for _ in range(12)]).flatten().tolist()
    epochs = [drawn[i : i + 12] for i in range(0, 60, 12)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5


def train(folder: Path, *arguments: str) -> str:
    """What the script prints when it is started without a launcher."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(
        [sys.executable, str(folder / "train.py"), *arguments],
        capture_output=True,
        text=True,
        env={**environment, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(output: str) -> list[float]:
    return [float(line.split()[3].rstrip(",")) for line in output.splitlines() if line.startswith("step ")]


@pytest.mark.slow
def test_the_script_trains_a_quantised_model_and_saves_its_adapter(make_winner: Any, tmp_path: Path) -> None:
    winner = make_winner(zero_stage=2, lora_rank=8, quantization="nf4", checkpoint_fraction=0.5)
    folder = export_folder(winner, tmp_path / "out")
    output = train(folder, "--steps", "3", "--output", str(tmp_path / "trained"))
    assert losses(output) == pytest.approx([5.545] * 3, abs=0.2)
    assert "tokens_per_second: " in output

    from peft import PeftModel
    from safetensors.torch import load_file

    base = build_model(winner.model, Point(), device=torch.device("cpu"))
    adapted = PeftModel.from_pretrained(base, tmp_path / "trained")
    assert adapted.peft_config["default"].r == 8
    weights = load_file(tmp_path / "trained" / "adapter_model.safetensors")
    # Seven linear layers in each of four decoder layers, an A and a B each; B starts at zero.
    assert len(weights) == 4 * 7 * 2
    assert all(bool(tensor.any()) for name, tensor in weights.items() if "lora_B" in name)


@pytest.mark.slow
def test_the_script_trains_on_the_users_text_and_weights(make_winner: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    winner = make_winner(zero_stage=3, precision="fp32")
    start = build_model(winner.model, winner.point, device=torch.device("cpu"))
    start.save_pretrained(tmp_path / "model")
    words = Tokenizer(models.WordLevel({"unknown": 0, "end": 1, "one": 2, "two": 3, "three": 4}, "unknown"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end", unk_token="unknown").save_pretrained(
        tmp_path / "model"
    )
    (tmp_path / "my.jsonl").write_text('{"text": "one two three"}\n' * 40)

    folder = export_folder(winner, tmp_path / "out")
    options = ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "my.jsonl")]
    options += ["--learning-rate", "0.01", "--output", str(tmp_path / "trained")]
    first, *_, last = losses(train(folder, "--steps", "12", *options))
    # A cycle of four words: from a uniform guess over 256 tokens towards certainty.
    assert first == pytest.approx(5.545, abs=0.2)
    assert last < 2.5

    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "trained")
    assert {n: p.shape for n, p in trained.named_parameters()} == {
        n: p.shape for n, p in start.named_parameters()
    }
    tokens = torch.tensor([[2, 3, 4, 1] * 8])
    assert trained(input_ids=tokens, labels=tokens).loss.item() < 2.5
    assert (tmp_path / "trained" / "tokenizer.json").exists()


def test_text_without_a_model_says_what_is_missing(
    make_winner: Any, load_script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(make_winner())
    monkeypatch.setattr(sys, "argv", ["train.py", "--data", "my.txt"])
    with pytest.raises(SystemExit, match="--data needs --model"):
        script.main()
