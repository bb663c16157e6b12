"""For LLaMA-Factory: the YAML of `llamafactory-cli train`.

Checked with llamafactory 0.9.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.export.arguments import (
    batch_arguments,
    device_arguments,
    optimizer_arguments,
    precision_arguments,
    schedule_arguments,
)
from autotune.export.exporter import Exporter, environment, header
from autotune.export.lora import lora_settings
from autotune.export.winner import Winner
from autotune.export.yaml_text import FILL_IN, yaml_text

CONFIG = "llamafactory.yaml"
ATTENTION = {"sdpa": "sdpa", "eager": "disabled", "flash_attention_2": "fa2"}
FP32_LOADING = (
    "Before training starts LLaMA-Factory makes fp32 of what is trained, which DeepSpeed casts back: "
    "loading needs more memory than was measured."
)


def start(winner: Winner) -> str:
    """How it starts; FORCE_TORCHRUN makes the process group that DeepSpeed needs."""
    launcher = f"FORCE_TORCHRUN=1 NPROC_PER_NODE={winner.gpus}"
    return f"{environment(winner)} {launcher} llamafactory-cli train {CONFIG}"


def model_arguments(winner: Winner) -> dict[str, Any]:
    """Attention, kernels, quantization, and checkpointing of its own in place of the Trainer's."""
    point = winner.point
    arguments: dict[str, Any] = {
        "flash_attn": ATTENTION[point.attention],
        "enable_liger_kernel": point.liger_kernel,
        "disable_gradient_checkpointing": point.checkpoint_fraction == 0,
    }
    if point.checkpoint_fraction:
        arguments["use_reentrant_gc"] = False
    if point.quantization != "none":
        arguments |= {
            "quantization_bit": 4 if point.quantization == "nf4" else 8,
            "quantization_method": "bnb",
        }
    if point.quantization == "nf4":
        arguments |= {"quantization_type": "nf4", "double_quantization": True}
    return arguments


def finetuning_arguments(winner: Winner) -> dict[str, Any]:
    """Full or LoRA."""
    lora = lora_settings(winner)
    if lora is None:
        return {"finetuning_type": "full"}
    targets = lora["target_modules"]
    return {
        "finetuning_type": "lora",
        "lora_rank": lora["r"],
        "lora_alpha": lora["lora_alpha"],
        "lora_dropout": lora["lora_dropout"],
        "lora_target": "all" if isinstance(targets, str) else ",".join(targets),
    }


def exported(winner: Winner) -> Mapping[str, str]:
    """The file."""
    sections = (
        (
            "Yours to fill in. stage pt takes plain text; sft needs packing: true and a template besides.",
            {
                "model_name_or_path": winner.weights_source or FILL_IN,
                "stage": "pt",
                "do_train": True,
                "dataset": FILL_IN,
                "dataset_dir": "data",
            },
        ),
        (
            # Said with stage pt, packing: true would make sequences a token shorter; it is the default there.
            "What was measured. Documents are packed into sequences of this many tokens.",
            {
                "deepspeed": "ds_config.auto.json",
                "cutoff_len": winner.seq_len,
                **batch_arguments(winner),
                # Its evaluation makes all logits, fused loss or not: one sequence at a time.
                **({"per_device_eval_batch_size": 1} if winner.point.liger_kernel else {}),
                **precision_arguments(winner),
                **optimizer_arguments(winner),
                **device_arguments(winner),
            },
        ),
        (
            "The model as it was measured.",
            {**model_arguments(winner), **finetuning_arguments(winner)},
        ),
        ("Yours to choose: memory and speed do not depend on it.", schedule_arguments()),
    )
    return {CONFIG: yaml_text(header("llamafactory", winner, start(winner), FP32_LOADING), sections)}


EXPORTER = Exporter("llamafactory", CONFIG, (CONFIG,), exported, start, ("llamafactory",))
