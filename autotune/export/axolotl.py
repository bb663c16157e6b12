"""For axolotl: the YAML of `axolotl train`.

Checked with axolotl 0.19.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.export.arguments import DTYPES, OPTIMIZERS, checkpointing_arguments, clipping
from autotune.export.ds_config import auto_but_precision
from autotune.export.exporter import Exporter, environment, header
from autotune.export.lora import lora_settings
from autotune.export.winner import Winner
from autotune.export.yaml_text import FILL_IN, yaml_text
from trials.ds_config import LEARNING_RATE

CONFIG = "axolotl.yaml"
DS_CONFIG = "ds_config.axolotl.json"
FP32_LOADING = (
    "Before training starts axolotl makes fp32 of embeddings and norms, which DeepSpeed casts back: loading "
    "needs more memory than was measured."
)
LIGER = {
    "plugins": ["axolotl.integrations.liger.LigerPlugin"],
    "liger_rope": True,
    "liger_rms_norm": True,
    "liger_layer_norm": True,
    "liger_glu_activation": True,
    "liger_fused_linear_cross_entropy": True,
}


def start(winner: Winner) -> str:
    """How it starts."""
    launcher = f"--launcher torchrun -- --nproc-per-node {winner.gpus}"
    return f"{environment(winner)} axolotl train {CONFIG} {launcher}"


def adapter(winner: Winner) -> dict[str, Any]:
    """Adapters and quantization; nothing for full fine-tuning."""
    lora, quantization = lora_settings(winner), winner.point.quantization
    if lora is None:
        return {}
    targets = lora["target_modules"]
    every = isinstance(targets, str)
    values: dict[str, Any] = {
        "adapter": "qlora" if quantization == "nf4" else "lora",
        "lora_r": lora["r"],
        "lora_alpha": lora["lora_alpha"],
        "lora_dropout": lora["lora_dropout"],
        **({"lora_target_linear": True} if every else {"lora_target_modules": targets}),
        "peft_autocast_adapter_dtype": False,
        # It switches fused kernels of its own on where they are not forbidden.
        "lora_mlp_kernel": False,
        "lora_qkv_kernel": False,
        "lora_o_kernel": False,
    }
    if quantization == "nf4":
        # Double quantization is its default; stored in 16 bits, which is its other one, the packed weights
        # would be cast with the rest by a DeepSpeed engine of another precision.
        storage = {"bnb_4bit_quant_storage": "uint8", "bnb_4bit_use_double_quant": True}
        values |= {"load_in_4bit": True, "bnb_config_kwargs": storage}
    elif quantization == "int8":
        values["load_in_8bit"] = True
    return values


def exported(winner: Winner) -> Mapping[str, str]:
    """The files."""
    point = winner.point
    sections = (
        (
            "Yours to fill in. completion is plain text; other types are for conversations.",
            {
                "base_model": winner.weights_source or FILL_IN,
                "datasets": [{"path": FILL_IN, "type": "completion", "field": "text"}],
                "dataset_prepared_path": "prepared",
            },
        ),
        (
            "What was measured. Sequences are padded to this many tokens.",
            {
                "deepspeed": DS_CONFIG,
                "sequence_len": winner.seq_len,
                "pad_to_sequence_len": True,
                "sample_packing": False,
                "micro_batch_size": point.micro_batch_size,
                # Its evaluation makes all logits, fused loss or not: one sequence at a time.
                **({"eval_batch_size": 1} if point.liger_kernel else {}),
                "gradient_accumulation_steps": point.gradient_accumulation_steps,
                "max_grad_norm": clipping(winner),
                "bf16": point.precision == "bf16",
                "fp16": point.precision == "fp16",
                "tf32": bool(winner.measured.tf32),
                "optimizer": OPTIMIZERS[point.optimizer],
                "weight_decay": 0.0,
                **checkpointing_arguments(winner),
                "attn_implementation": point.attention,
                **(LIGER if point.liger_kernel else {}),
            },
        ),
        (f"Adapters, in {DTYPES[point.precision]} as they were measured.", adapter(winner)),
        (
            "Yours to choose: memory and speed do not depend on it.",
            {
                "learning_rate": LEARNING_RATE,
                "num_epochs": 1,
                "logging_steps": 10,
                "save_strategy": "no",
                "output_dir": "trained",
            },
        ),
    )
    return {
        CONFIG: yaml_text(header("axolotl", winner, start(winner), FP32_LOADING), sections),
        DS_CONFIG: json.dumps(auto_but_precision(winner.ds_config), indent=2) + "\n",
    }


EXPORTER = Exporter("axolotl", CONFIG, (CONFIG, DS_CONFIG), exported, start, ("axolotl",))
