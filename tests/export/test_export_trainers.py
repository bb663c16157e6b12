"""What each trainer's files say of the winner: every knob, or that it is lost."""

from __future__ import annotations

import ast
import itertools
import json
import shlex
from typing import Any

import pytest
import yaml

from autotune.cli.options import FORMATS
from autotune.errors import UsageError
from autotune.export import EVERY, EXPORTERS, chosen_exporters, folder_files, loss_words
from autotune.export.yaml_text import FILL_IN
from autotune.space import trainers

YAML_TRAINERS = ("transformers", "trl", "llamafactory", "axolotl", "swift")


def exported(winner: Any, trainer: str) -> dict[str, str]:
    return dict(EXPORTERS[trainer].files(winner))


def values(winner: Any, trainer: str) -> dict[str, Any]:
    """The trainer's YAML, parsed."""
    main = EXPORTERS[trainer].main_file
    parsed: dict[str, Any] = yaml.safe_load(exported(winner, trainer)[main])
    return parsed


def test_there_is_one_exporter_for_each_trainer_and_the_command_line_knows_them() -> None:
    assert set(EXPORTERS) == set(trainers())
    assert (*EXPORTERS, EVERY) == FORMATS


def test_every_file_can_be_read_and_says_how_to_start(make_winner: Any) -> None:
    for fields in (
        {},
        {"lora_rank": 8, "checkpoint_fraction": 0.5, "zero_stage": 2},
        {"lora_rank": 8, "quantization": "nf4", "optimizer": "paged_adamw8bit", "liger_kernel": True},
        {"zero_stage": 3, "offload": "nvme_optimizer+parameters", "precision": "fp16"},
    ):
        winner = make_winner(**fields)
        for exporter in chosen_exporters([EVERY], winner.point):
            files = exporter.files(winner)
            assert set(files) <= set(exporter.names)
            for name, text in files.items():
                if name.endswith(".yaml"):
                    assert isinstance(yaml.safe_load(text), dict)
                elif name.endswith(".json"):
                    assert isinstance(json.loads(text), dict)
                else:
                    ast.parse(text)
                    assert "$" not in text and "# [" not in text, name
                if not name.endswith(".json"):
                    assert exporter.start(winner) in text, (exporter.name, name)
            assert shlex.split(exporter.start(winner))


def test_the_folder_holds_what_a_start_names(make_winner: Any) -> None:
    winner = make_winner(lora_rank=8)
    for exporter in chosen_exporters([EVERY], winner.point):
        files = folder_files(winner, [exporter])
        assert exporter.main_file in files
        named = [word for word in exporter.start(winner).split() if word.endswith((".yaml", ".py", ".json"))]
        assert named and set(named) <= set(files), exporter.name
        assert exporter.start(winner) in files["README.md"] or exporter.name in ("deepspeed", "script")


# Where each trainer says a knob: its key, and its value for the point's. Read in the trainers' sources.
ADAMW = {"adamw": "adamw_torch", "adamw8bit": "adamw_bnb_8bit", "paged_adamw8bit": "paged_adamw_8bit"}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
MICRO_BATCH = dict.fromkeys(YAML_TRAINERS, "per_device_train_batch_size") | {"axolotl": "micro_batch_size"}
OPTIMIZER = dict.fromkeys(YAML_TRAINERS, "optim") | {"axolotl": "optimizer"}
SEQUENCE = {
    "trl": "max_length",
    "llamafactory": "cutoff_len",
    "axolotl": "sequence_len",
    "swift": "max_length",
}


@pytest.mark.parametrize("trainer", YAML_TRAINERS)
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit", "paged_adamw8bit"])
def test_batch_precision_and_optimizer_are_the_winner_s(
    make_winner: Any, trainer: str, precision: str, optimizer: str
) -> None:
    winner = make_winner(
        micro_batch_size=3,
        gradient_accumulation_steps=5,
        precision=precision,
        optimizer=optimizer,
        zero_stage=1,
    )
    found = values(winner, trainer)
    assert found[MICRO_BATCH[trainer]] == 3
    assert found["gradient_accumulation_steps"] == 5
    assert found["max_grad_norm"] == 1.0
    assert (found["bf16"], found["fp16"]) == (precision == "bf16", precision == "fp16")
    fused = trainer == "swift" and optimizer == "adamw"
    assert found[OPTIMIZER[trainer]] == ("adamw_torch_fused" if fused else ADAMW[optimizer])
    assert found["deepspeed"] in folder_files(winner, [EXPORTERS[trainer]])
    if trainer in SEQUENCE:
        assert found[SEQUENCE[trainer]] == 32
    if trainer in ("trl", "swift"):
        assert found["dtype" if trainer == "trl" else "torch_dtype"] == DTYPES[precision]


@pytest.mark.parametrize("trainer", YAML_TRAINERS)
def test_clipping_that_was_off_stays_off(make_winner: Any, trainer: str) -> None:
    winner = make_winner(zero_stage=1)
    config = {**winner.result.ds_config, "gradient_clipping": 0.0}
    off = winner.model_copy(update={"result": winner.result.model_copy(update={"ds_config": config})})
    assert values(off, trainer)["max_grad_norm"] == 0.0


def test_layers_are_checkpointed_all_or_none_and_not_reentrant(make_winner: Any) -> None:
    for fraction, trainer in itertools.product((0.0, 0.25, 1.0), YAML_TRAINERS):
        found = values(make_winner(checkpoint_fraction=fraction), trainer)
        if trainer == "llamafactory":
            assert found["disable_gradient_checkpointing"] == (fraction == 0)
            assert found.get("use_reentrant_gc") == (None if fraction == 0 else False)
        else:
            assert found["gradient_checkpointing"] == (fraction > 0)
            assert (found.get("gradient_checkpointing_kwargs") == {"use_reentrant": False}) == (fraction > 0)


ADAPTERS = {
    "trl": {"use_peft": True, "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0},
    "llamafactory": {"finetuning_type": "lora", "lora_rank": 16, "lora_alpha": 32, "lora_dropout": 0.0},
    "axolotl": {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0},
    "swift": {"tuner_type": "lora", "lora_rank": 16, "lora_alpha": 32, "lora_dropout": 0.0},
}
FULL = {
    "trl": {},
    "llamafactory": {"finetuning_type": "full"},
    "axolotl": {},
    "swift": {"tuner_type": "full"},
}
TARGETS = {
    "trl": "lora_target_modules",
    "llamafactory": "lora_target",
    "axolotl": "lora_target_modules",
    "swift": "target_modules",
}


@pytest.mark.parametrize("trainer", ADAPTERS)
def test_adapters_have_rank_alpha_dropout_and_targets(make_winner: Any, trainer: str) -> None:
    winner = make_winner(lora_rank=16)
    chosen = winner.result.model_copy(update={"lora_targets": ("v_proj", "q_proj")})
    found = values(winner.model_copy(update={"result": chosen}), trainer)
    assert ADAPTERS[trainer].items() <= found.items()
    names = found[TARGETS[trainer]]
    assert (names.split(",") if trainer == "llamafactory" else names) == ["q_proj", "v_proj"]

    full = values(make_winner(), trainer)
    assert FULL[trainer].items() <= full.items()
    assert not any(name in full for name in ("lora_r", "lora_rank", "use_peft", "adapter"))


@pytest.mark.parametrize("trainer", ADAPTERS)
def test_targets_that_no_trial_resolved_are_every_linear_layer(make_winner: Any, trainer: str) -> None:
    winner = make_winner(lora_rank=16)
    unresolved = winner.model_copy(update={"result": winner.result.model_copy(update={"lora_targets": None})})
    found = values(unresolved, trainer)
    every = {
        "trl": {"lora_target_modules": ["all-linear"]},
        "llamafactory": {"lora_target": "all"},
        "axolotl": {"lora_target_linear": True},
        "swift": {"target_modules": ["all-linear"]},
    }
    assert every[trainer].items() <= found.items()


NF4 = {
    "trl": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True},
    "llamafactory": {
        "quantization_bit": 4,
        "quantization_method": "bnb",
        "quantization_type": "nf4",
        "double_quantization": True,
    },
    "axolotl": {"load_in_4bit": True, "adapter": "qlora"},
    "swift": {
        "quant_method": "bnb",
        "quant_bits": 4,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": "bfloat16",
    },
}
INT8 = {
    "trl": {"load_in_8bit": True},
    "llamafactory": {"quantization_bit": 8, "quantization_method": "bnb"},
    "axolotl": {"load_in_8bit": True, "adapter": "lora"},
    "swift": {"quant_method": "bnb", "quant_bits": 8},
}


@pytest.mark.parametrize("trainer", NF4)
def test_the_base_is_quantised_as_it_was(make_winner: Any, trainer: str) -> None:
    assert NF4[trainer].items() <= values(make_winner(lora_rank=8, quantization="nf4"), trainer).items()
    assert INT8[trainer].items() <= values(make_winner(lora_rank=8, quantization="int8"), trainer).items()
    plain = values(make_winner(lora_rank=8), trainer)
    assert not any("4bit" in key or "8bit" in key or "quant" in key for key in plain)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flash_attention_2"])
def test_attention_is_said(make_winner: Any, attention: str) -> None:
    winner = make_winner(attention=attention)
    assert values(winner, "trl")["attn_implementation"] == attention
    assert values(winner, "axolotl")["attn_implementation"] == attention
    assert values(winner, "swift")["attn_impl"] == attention
    short = {"sdpa": "sdpa", "eager": "disabled", "flash_attention_2": "fa2"}
    assert values(winner, "llamafactory")["flash_attn"] == short[attention]


def test_liger_is_said(make_winner: Any) -> None:
    on, off = make_winner(liger_kernel=True), make_winner()
    for trainer in ("transformers", "trl", "swift"):
        assert values(on, trainer)["use_liger_kernel"] is True
        assert values(off, trainer)["use_liger_kernel"] is False
    assert values(on, "llamafactory")["enable_liger_kernel"] is True
    assert values(on, "axolotl")["plugins"] == ["axolotl.integrations.liger.LigerPlugin"]
    assert values(on, "axolotl")["liger_fused_linear_cross_entropy"] is True
    assert "plugins" not in values(off, "axolotl")


def test_axolotl_does_not_switch_on_kernels_of_its_own(make_winner: Any) -> None:
    found = values(make_winner(lora_rank=8), "axolotl")
    assert not (found["lora_mlp_kernel"] or found["lora_qkv_kernel"] or found["lora_o_kernel"])
    assert found["peft_autocast_adapter_dtype"] is False


def test_axolotl_is_told_the_precision_before_it_loads_a_model(make_winner: Any) -> None:
    # With "auto" deepspeed.zero.Init would make fp32 of it: axolotl loads before the Trainer fills that in.
    for precision in ("bf16", "fp16"):
        winner = make_winner(zero_stage=3, precision=precision)
        config = json.loads(exported(winner, "axolotl")["ds_config.axolotl.json"])
        assert config[precision] == winner.ds_config[precision]
        assert config["train_micro_batch_size_per_gpu"] == "auto"
        assert config["zero_optimization"] == winner.ds_config["zero_optimization"]


def test_swift_makes_the_optimizer_itself(make_winner: Any) -> None:
    # It fails on the stand-in that transformers makes of an optimizer in the DeepSpeed configuration.
    winner = make_winner(zero_stage=2, offload="optimizer")
    files = exported(winner, "swift")
    assert "optimizer" not in json.loads(files["ds_config.swift.json"])
    assert "fused AdamW stands in" in files["swift.yaml"]


def test_tf32_is_asked_for_where_it_was_measured_with(make_winner: Any) -> None:
    winner = make_winner(precision="fp32")
    fast = winner.model_copy(update={"result": winner.result.model_copy(update={"tf32": True})})
    for trainer in YAML_TRAINERS:
        assert values(fast, trainer)["tf32"] is True
        assert not values(winner, trainer).get("tf32")


def test_a_winner_of_a_gpu_starts_with_expandable_segments_and_one_of_the_cpu_there(make_winner: Any) -> None:
    gpu = make_winner(winner={"device": "cuda"}, lora_rank=8)
    for name, exporter in EXPORTERS.items():
        if name != "script":
            assert exporter.start(gpu).startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ")
    assert "use_cpu" not in values(gpu, "trl")
    cpu = make_winner(lora_rank=8)
    assert values(cpu, "trl")["use_cpu"] is True
    assert EXPORTERS["trl"].start(cpu).startswith("DS_ACCELERATOR=cpu ")


def test_what_only_the_user_knows_is_marked(make_winner: Any) -> None:
    unknown, known = make_winner(), make_winner(winner={"hub_id": "org/tiny"})
    for trainer, key in {
        "trl": "model_name_or_path",
        "llamafactory": "model_name_or_path",
        "axolotl": "base_model",
        "swift": "model",
    }.items():
        assert values(unknown, trainer)[key] == FILL_IN
        assert values(known, trainer)[key] == "org/tiny"
        assert FILL_IN in exported(known, trainer)[EXPORTERS[trainer].main_file]


def test_accelerate_names_a_file_of_numbers_and_no_zero_keys_of_its_own(make_winner: Any) -> None:
    winner = make_winner(zero_stage=3, offload="optimizer+parameters", winner={"gpus": 2})
    files = exported(winner, "accelerate")
    config = yaml.safe_load(files["accelerate.yaml"])
    assert config["distributed_type"] == "DEEPSPEED"
    assert config["num_processes"] == 2
    assert set(config["deepspeed_config"]) == {
        "deepspeed_config_file",
        "deepspeed_multinode_launcher",
        "zero3_init_flag",
    }
    assert config["deepspeed_config"]["zero3_init_flag"] is True
    numbers = json.loads(files[config["deepspeed_config"]["deepspeed_config_file"]])
    assert numbers == {**winner.ds_config, "train_batch_size": "auto"}
    assert "mixed_precision" not in config


def test_a_configuration_for_accelerate_says_the_stage_even_where_it_is_0(make_winner: Any) -> None:
    files = exported(make_winner(), "accelerate")
    assert json.loads(files["ds_config.accelerate.json"])["zero_optimization"] == {"stage": 0}
    assert json.loads(folder_files(make_winner())["ds_config.auto.json"])["zero_optimization"] == {"stage": 0}


@pytest.mark.parametrize(("liger", "expected"), [(False, 4), (True, 1)])
def test_a_trainer_whose_evaluation_makes_all_logits_evaluates_one_sequence_with_fused_loss(
    make_winner: Any, liger: bool, expected: int
) -> None:
    winner = make_winner(lora_rank=8, micro_batch_size=4, liger_kernel=liger)
    factory = yaml.safe_load(exported(winner, "llamafactory")["llamafactory.yaml"])
    assert factory["per_device_eval_batch_size"] == expected
    # Axolotl's default is the micro batch.
    axolotl = yaml.safe_load(exported(winner, "axolotl")["axolotl.yaml"])
    assert axolotl.get("eval_batch_size", axolotl["micro_batch_size"]) == expected
    # These ask liger for no logits themselves.
    for trainer in ("transformers", "trl", "swift"):
        assert yaml.safe_load(exported(winner, trainer)[f"{trainer}.yaml"])["per_device_eval_batch_size"] == 4


def test_the_trainer_reads_its_arguments_with_its_own_parser(make_winner: Any, tmp_path: Any) -> None:
    from transformers import HfArgumentParser, TrainingArguments

    winner = make_winner(lora_rank=8, checkpoint_fraction=1.0, optimizer="adamw8bit")
    text = exported(winner, "transformers")["transformers.yaml"]
    # The name of the DeepSpeed file is relative to the folder; here the arguments alone are parsed.
    without = "\n".join(line for line in text.splitlines() if not line.startswith("deepspeed:"))
    (tmp_path / "t.yaml").write_text(without)
    (parsed,) = HfArgumentParser(TrainingArguments).parse_yaml_file(str(tmp_path / "t.yaml"))
    assert parsed.per_device_train_batch_size == winner.point.micro_batch_size
    assert parsed.per_device_eval_batch_size == winner.point.micro_batch_size
    assert parsed.gradient_accumulation_steps == winner.point.gradient_accumulation_steps
    assert parsed.bf16 and parsed.gradient_checkpointing
    assert parsed.optim.value == "adamw_bnb_8bit"


def test_peft_reads_the_adapter_and_its_script_uses_it(make_winner: Any, tmp_path: Any) -> None:
    from peft import LoraConfig

    winner = make_winner(lora_rank=16)
    files = exported(winner, "peft")
    (tmp_path / "adapter_config.json").write_text(files["adapter_config.json"])
    read = LoraConfig.from_pretrained(tmp_path)
    assert (read.r, read.lora_alpha, read.lora_dropout, read.bias) == (16, 32, 0.0, "none")
    assert "LoraConfig.from_pretrained(HERE)" in files["train_peft.py"]


def test_an_adapter_of_full_fine_tuning_makes_no_sense(make_winner: Any) -> None:
    full, lora = make_winner().point, make_winner(lora_rank=8).point
    with pytest.raises(UsageError, match="full fine-tuning has none"):
        chosen_exporters(["trl", "peft"], full)
    assert [one.name for one in chosen_exporters(["peft", "trl", "peft"], lora)] == ["peft", "trl"]
    assert "peft" not in [one.name for one in chosen_exporters([EVERY], full)]
    assert len(chosen_exporters([EVERY, "trl"], lora)) == len(EXPORTERS)


@pytest.mark.parametrize("trainer", [name for name in EXPORTERS if name not in ("deepspeed", "script")])
def test_a_share_of_checkpointed_layers_is_named_as_lost_at_the_top(make_winner: Any, trainer: str) -> None:
    winner = make_winner(lora_rank=8, checkpoint_fraction=0.25)
    (words,) = loss_words(trainer, winner)
    assert words.startswith("checkpoint_fraction 0.25 is lost")
    assert "every layer" in words
    for name, text in exported(winner, trainer).items():
        if not name.endswith(".json"):
            assert "LOST: checkpoint_fraction 0.25" in "\n".join(text.splitlines()[:4]), name
    readme = folder_files(winner, [EXPORTERS[trainer]])["README.md"]
    assert "Lost: checkpoint_fraction 0.25" in readme


def test_what_is_not_lost_is_not_called_lost(make_winner: Any) -> None:
    for fraction, trainer in itertools.product((0.0, 1.0), EXPORTERS):
        winner = make_winner(lora_rank=8, checkpoint_fraction=fraction, zero_stage=2)
        assert loss_words(trainer, winner) == ()
        assert not any("LOST" in text for text in exported(winner, trainer).values())
    share = make_winner(checkpoint_fraction=0.5)
    assert loss_words("script", share) == loss_words("deepspeed", share) == ()
