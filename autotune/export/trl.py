"""For TRL: SFTConfig and ModelConfig in one YAML, for `trl sft --config`.

Checked with trl 1.14.0 and 1.16.0. From 1.15.0 on SFTTrainer has no loss but its own chunked one, and of
Liger takes the layers' kernels alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.export.arguments import (
    DTYPES,
    batch_arguments,
    checkpointing_arguments,
    device_arguments,
    optimizer_arguments,
    precision_arguments,
    schedule_arguments,
)
from autotune.export.exporter import Exporter, header, torchrun
from autotune.export.lora import lora_settings
from autotune.export.winner import Winner
from autotune.export.yaml_text import FILL_IN, yaml_text

CONFIG = "trl.yaml"
CHUNKED_LOSS = (
    "Up to TRL 1.14 the loss is the one that was measured; from 1.15 on it is always computed in chunks, "
    "without the logits, which needs less memory, most where the vocabulary is large."
)
# Measured with 32 sequences of 1,024 tokens and a vocabulary of 151,936: benchmarks/results/exports_h200.md.
METRICS = (
    "SFTTrainer computes entropy and accuracy from the logits in every step, which cannot be turned off: 2 "
    "to 4 % slower on an H200 than transformers' Trainer, where the vocabulary is large."
)
REENTRANT = "With adapters under ZeRO-3 SFTTrainer recomputes with use_reentrant: true whatever is asked for."


def start(winner: Winner) -> str:
    """How TRL's own script starts; `trl sft` has no process group, which DeepSpeed needs."""
    return torchrun(winner, f"-m trl.scripts.sft --config {CONFIG}")


def model_config(winner: Winner) -> dict[str, Any]:
    """ModelConfig: precision, attention, adapters and quantization."""
    point = winner.point
    config: dict[str, Any] = {"dtype": DTYPES[point.precision], "attn_implementation": point.attention}
    lora = lora_settings(winner)
    if lora is not None:
        targets = lora["target_modules"]
        config |= {
            "use_peft": True,
            "lora_r": lora["r"],
            "lora_alpha": lora["lora_alpha"],
            "lora_dropout": lora["lora_dropout"],
            "lora_target_modules": [targets] if isinstance(targets, str) else targets,
        }
    if point.quantization == "nf4":
        config |= {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}
    elif point.quantization == "int8":
        config |= {"load_in_8bit": True}
    return config


def exported(winner: Winner) -> Mapping[str, str]:
    """The file."""
    point = winner.point
    remarks = [CHUNKED_LOSS]
    if not point.liger_kernel:
        remarks.append(METRICS)
    if point.lora_rank and point.zero_stage == 3 and point.checkpoint_fraction:
        remarks.append(REENTRANT)
    sections = (
        (
            "Yours to fill in: a hub id or a folder of text files, and the column of the text.",
            {
                "model_name_or_path": winner.weights_source or FILL_IN,
                "dataset_name": FILL_IN,
                "dataset_text_field": "text",
            },
        ),
        (
            "What was measured. Documents are packed into sequences of this many tokens.",
            {
                "deepspeed": "ds_config.auto.json",
                "max_length": winner.seq_len,
                "packing": True,
                "packing_strategy": "wrapped",
                "loss_type": "nll",
                **batch_arguments(winner),
                **precision_arguments(winner),
                **optimizer_arguments(winner),
                **checkpointing_arguments(winner),
                "use_liger_kernel": point.liger_kernel,
                **device_arguments(winner),
            },
        ),
        ("The model as it was measured.", model_config(winner)),
        ("Yours to choose: memory and speed do not depend on it.", schedule_arguments()),
    )
    return {CONFIG: yaml_text(header("trl", winner, start(winner), *remarks), sections)}


EXPORTER = Exporter("trl", CONFIG, (CONFIG,), exported, start, ("trl",))
