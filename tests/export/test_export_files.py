from __future__ import annotations

import json
from typing import Any

import pytest
from peft import LoraConfig
from transformers import BitsAndBytesConfig, TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from autotune.export import folder_files
from trials.quantize import bitsandbytes_settings
from trials.wire import ModelSpec, Phase, Point


def files(winner: Any) -> dict[str, Any]:
    """The export's JSON files, parsed."""
    return {name: json.loads(text) for name, text in folder_files(winner).items() if name.endswith(".json")}


def test_ds_config_is_exactly_what_ran_and_the_confirmation_counts(make_winner: Any) -> None:
    winner = make_winner(zero_stage=2)
    assert files(winner)["ds_config.json"] == winner.result.ds_config
    confirmed = {**winner.result.ds_config, "steps_per_print": 7}
    confirmation = winner.result.model_copy(update={"ds_config": confirmed, "phase": Phase.SAVING})
    both = winner.model_copy(update={"confirmation": confirmation})
    assert files(both)["ds_config.json"] == confirmed


POINTS: list[dict[str, Any]] = [
    {"zero_stage": 0},
    {"zero_stage": 2, "precision": "fp32"},
    {"zero_stage": 1, "precision": "fp16", "optimizer": "adamw8bit"},
    {"zero_stage": 3, "offload": "optimizer+parameters", "gradient_accumulation_steps": 4},
    {"zero_stage": 3, "offload": "nvme_optimizer", "lora_rank": 8},
]


@pytest.mark.parametrize("point", POINTS)
def test_the_trainer_fills_the_auto_file_to_what_ran(
    make_winner: Any, point: dict[str, Any], tmp_path: Any
) -> None:
    winner = make_winner(**point)
    written = files(winner)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        per_device_train_batch_size=winner.point.micro_batch_size,
        gradient_accumulation_steps=winner.point.gradient_accumulation_steps,
        learning_rate=1e-5,
        max_grad_norm=1.0,
        weight_decay=0.0,
    )
    # On a CPU TrainingArguments refuses fp16; what is asked of it here is the flag alone.
    arguments.bf16, arguments.fp16 = winner.point.precision == "bf16", winner.point.precision == "fp16"
    config = HfTrainerDeepSpeedConfig(written["ds_config.auto.json"])
    config.trainer_config_process(arguments)
    assert config.mismatches == []
    # accelerate refuses a configuration that does not say ZeRO's stage, and DeepSpeed's default is 0.
    assert config.config == {"zero_optimization": {"stage": 0}, **written["ds_config.json"]}


def test_the_auto_file_leaves_the_batch_the_clipping_the_rate_and_the_precision_open(
    make_winner: Any,
) -> None:
    auto = files(make_winner(zero_stage=2))["ds_config.auto.json"]
    assert auto["train_micro_batch_size_per_gpu"] == "auto"
    assert auto["gradient_accumulation_steps"] == "auto"
    assert auto["train_batch_size"] == "auto"
    assert auto["gradient_clipping"] == "auto"
    assert auto["bf16"]["enabled"] == "auto"
    assert auto["optimizer"]["params"]["lr"] == "auto"
    assert auto["zero_optimization"]["reduce_bucket_size"] == 180_000
    assert "fp16" not in auto


def test_peft_reads_the_lora_config(make_winner: Any, tmp_path: Any) -> None:
    written = files(make_winner(lora_rank=16))["peft_config.json"]
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    expected = LoraConfig(
        task_type="CAUSAL_LM", r=16, lora_alpha=32, lora_dropout=0.0, bias="none", target_modules=targets
    )
    assert LoraConfig(**written) == expected
    (tmp_path / "adapter_config.json").write_text(json.dumps(written))
    assert LoraConfig.from_pretrained(tmp_path) == expected


def test_a_choice_of_targets_is_kept(make_winner: Any) -> None:
    winner = make_winner(lora_rank=8)
    chosen = winner.result.model_copy(update={"lora_targets": ("v_proj", "q_proj")})
    assert files(winner.model_copy(update={"result": chosen}))["peft_config.json"]["target_modules"] == [
        "q_proj",
        "v_proj",
    ]


def test_files_that_do_not_apply_are_not_written(make_winner: Any) -> None:
    always = {"autotune.json", "ds_config.json", "ds_config.auto.json", "train.py", "README.md"}
    assert set(folder_files(make_winner())) == always
    assert set(folder_files(make_winner(lora_rank=8))) == always | {"peft_config.json"}
    quantized = {"peft_config.json", "quantization_config.json"}
    assert set(folder_files(make_winner(lora_rank=8, quantization="nf4"))) == always | quantized


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_transformers_reads_the_quantization_that_ran(
    make_winner: Any, quantization: Any, precision: Any
) -> None:
    written = files(make_winner(lora_rank=8, quantization=quantization, precision=precision))
    read = BitsAndBytesConfig(**written["quantization_config.json"])
    ran = bitsandbytes_settings(Point(lora_rank=8, quantization=quantization, precision=precision))
    assert read.to_dict() == BitsAndBytesConfig(**ran).to_dict()
    assert (read.load_in_4bit, read.load_in_8bit) == (quantization == "nf4", quantization == "int8")
    if quantization == "nf4":
        assert read.quantization_method() == "nf4"
        assert read.bnb_4bit_use_double_quant
        assert (
            str(read.bnb_4bit_compute_dtype)
            == {
                "bf16": "torch.bfloat16",
                "fp16": "torch.float16",
                "fp32": "torch.float32",
            }[precision]
        )


def test_the_record_holds_the_point_the_model_and_the_announced_measurements(make_winner: Any) -> None:
    winner = make_winner(lora_rank=8)
    confirmation = winner.result.model_copy(update={"tokens_per_second": 1100.0})
    record = files(winner.model_copy(update={"confirmation": confirmation}))["autotune.json"]
    assert Point.model_validate(record["point"]) == winner.point
    assert ModelSpec.model_validate(record["model"]) == winner.model
    assert record["measured"]["tokens_per_second"] == 1100.0
    assert record["trial"]["tokens_per_second"] == 1234.5
    assert record["confirmed"]
    # 2 sequences x 2 accumulated x 32 tokens on one GPU.
    assert record["tokens_per_step"] == 128
    assert record["versions"]["torch"] == "2.13.0+cpu"
    assert record["command"] == winner.command
    assert record["method"] == "lora"


def test_weights_are_asked_for_only_where_the_name_says_whose(make_winner: Any) -> None:
    def source(**values: Any) -> str | None:
        return make_winner(winner=values).weights_source

    config = make_winner().model.config
    assert source() is None
    assert source(hub_id="org/tiny") == "org/tiny"
    assert source(model=ModelSpec(name="org/model", config=config)) == "org/model"
    assert source(model=ModelSpec(name="some/config.json", config=config)) is None
    assert source(model=ModelSpec(name="tiny", config=config, weights="/models/tiny")) == "/models/tiny"


def test_the_readme_says_how_to_start_and_what_the_trainer_cannot_do(make_winner: Any) -> None:
    winner = make_winner(lora_rank=8, checkpoint_fraction=0.5, zero_stage=3, offload="nvme_optimizer")
    text = folder_files(winner)["README.md"]
    for part in (
        "python train.py",
        "torchrun --nproc-per-node",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "DS_ACCELERATOR=cpu",
        "libaio",
        "torch==2.13.0 transformers==5.17.0 accelerate deepspeed peft==0.21.2\n",
        winner.command,
        "The Trainer recomputes every layer or none",
    ):
        assert part in text, part
    plain = folder_files(make_winner())["README.md"]
    for part in ("libaio", "peft", "The Trainer recomputes", "# [", "$"):
        assert part not in plain, part
