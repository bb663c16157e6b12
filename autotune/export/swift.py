"""For ms-swift: the YAML of `swift sft`.

Checked with ms-swift 4.6.0.
"""

from __future__ import annotations

import json
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
from autotune.export.ds_config import auto_ds_config
from autotune.export.exporter import Exporter, environment, header
from autotune.export.lora import lora_settings
from autotune.export.winner import Winner
from autotune.export.yaml_text import FILL_IN, yaml_text

CONFIG = "swift.yaml"
DS_CONFIG = "ds_config.swift.json"
# Its create_optimizer fails on the stand-in that transformers makes of a DeepSpeed configuration's optimizer.
OWN_OPTIMIZER = (
    "ms-swift takes no optimizer in the DeepSpeed configuration: torch's fused AdamW stands in for "
    "DeepSpeed's; with offload Accelerate makes DeepSpeed's of it."
)
UNPACKED = (
    "Sequences are padded to the longest of a micro batch: shorter ones than were measured need less memory."
)


def start(winner: Winner) -> str:
    """How it starts; NPROC_PER_NODE makes the process group that DeepSpeed needs."""
    return f"{environment(winner)} NPROC_PER_NODE={winner.gpus} swift sft {CONFIG}"


def tuner_arguments(winner: Winner) -> dict[str, Any]:
    """Full or LoRA, and the quantised base."""
    point, lora = winner.point, lora_settings(winner)
    if lora is None:
        return {"tuner_type": "full"}
    targets = lora["target_modules"]
    arguments: dict[str, Any] = {
        "tuner_type": "lora",
        "lora_rank": lora["r"],
        "lora_alpha": lora["lora_alpha"],
        "lora_dropout": lora["lora_dropout"],
        "lora_dtype": DTYPES[point.precision],
        "target_modules": [targets] if isinstance(targets, str) else targets,
    }
    if point.quantization != "none":
        arguments |= {"quant_method": "bnb", "quant_bits": 4 if point.quantization == "nf4" else 8}
    if point.quantization == "nf4":
        arguments |= {
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": DTYPES[point.precision],
        }
    return arguments


def exported(winner: Winner) -> Mapping[str, str]:
    """The files."""
    point = winner.point
    sections = (
        (
            "Yours to fill in: a hub id or folder with use_hf, and a .jsonl of messages or a hub id.",
            {"model": winner.weights_source or FILL_IN, "use_hf": True, "dataset": [FILL_IN]},
        ),
        (
            "What was measured.",
            {
                "deepspeed": DS_CONFIG,
                "max_length": winner.seq_len,
                # Its default leaves longer documents out.
                "truncation_strategy": "right",
                **batch_arguments(winner),
                **precision_arguments(winner),
                **optimizer_arguments(winner),
                **({"optim": "adamw_torch_fused"} if point.optimizer == "adamw" else {}),
                **checkpointing_arguments(winner),
                "use_liger_kernel": point.liger_kernel,
                **device_arguments(winner),
            },
        ),
        (
            "The model as it was measured.",
            {
                "torch_dtype": DTYPES[point.precision],
                "attn_impl": point.attention,
                **tuner_arguments(winner),
            },
        ),
        ("Yours to choose: memory and speed do not depend on it.", schedule_arguments()),
    )
    remarks = [UNPACKED, *([OWN_OPTIMIZER] if point.optimizer == "adamw" else [])]
    config = auto_ds_config(winner.ds_config)
    config.pop("optimizer", None)
    return {
        CONFIG: yaml_text(header("swift", winner, start(winner), *remarks), sections),
        DS_CONFIG: json.dumps(config, indent=2) + "\n",
    }


EXPORTER = Exporter("swift", CONFIG, (CONFIG, DS_CONFIG), exported, start, ("ms-swift",))
