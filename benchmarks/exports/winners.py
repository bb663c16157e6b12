"""The winners whose exports are checked: one of each kind that trains on a CPU."""

from __future__ import annotations

from typing import Any

from autotune.export import Winner
from autotune.models import resolve_model
from trials.ds_config import deepspeed_config
from trials.wire import Outcome, Phase, Point, TrialResult

MODEL = "tiny-llama"
SEQ_LEN = 64
LINEAR = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
PARAMETERS, EMBEDDING = 5_048_576, 4096 * 256

POINTS: dict[str, dict[str, Any]] = {
    "full, ZeRO-2, optimizer offloaded": {
        "zero_stage": 2,
        "offload": "optimizer",
        "checkpoint_fraction": 1.0,
    },
    "LoRA, stage 0": {"lora_rank": 16},
    "QLoRA NF4, 8-bit AdamW": {
        "lora_rank": 8,
        "quantization": "nf4",
        "optimizer": "adamw8bit",
        "checkpoint_fraction": 1.0,
    },
    "full, ZeRO-3, all offloaded": {
        "zero_stage": 3,
        "offload": "optimizer+parameters",
        "checkpoint_fraction": 1.0,
    },
    "QLoRA int8, ZeRO-1": {"lora_rank": 8, "quantization": "int8", "zero_stage": 1},
    "full, 8-bit AdamW, ZeRO-1, eager": {
        "optimizer": "adamw8bit",
        "zero_stage": 1,
        "attention": "eager",
    },
    "LoRA, ZeRO-3": {"lora_rank": 16, "zero_stage": 3, "checkpoint_fraction": 1.0},
    "full, fp32, stage 0": {"precision": "fp32", "gradient_accumulation_steps": 1},
    "LoRA, half of the layers": {"lora_rank": 16, "zero_stage": 2, "checkpoint_fraction": 0.5},
}
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}

# Which winners each trainer trains: all where it takes seconds, elsewhere those that differ most and for
# which DeepSpeed compiles nothing.
FEW = (
    "QLoRA NF4, 8-bit AdamW",
    "full, 8-bit AdamW, ZeRO-1, eager",
    "LoRA, half of the layers",
    "LoRA, ZeRO-3",
)
WINNERS: dict[str, tuple[str, ...]] = {
    "deepspeed": ("LoRA, half of the layers",),
    "transformers": tuple(POINTS),
    "accelerate": tuple(POINTS),
    "trl": tuple(POINTS),
    "peft": ("LoRA, stage 0", *FEW),
    "llamafactory": FEW,
    "axolotl": FEW,
    "swift": FEW,
    "script": ("LoRA, half of the layers", "full, ZeRO-3, all offloaded"),
}


def winner(name: str) -> Winner:
    """A winner as `autotune run --device cpu` would hand it over; only what is exported of it is real."""
    point = Point(**{"micro_batch_size": 2, "gradient_accumulation_steps": 2, **POINTS[name]})
    per_rank = 4 * (2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 704))
    trained = point.lora_rank * per_rank or PARAMETERS
    result = TrialResult(
        trial_id="trial-1",
        outcome=Outcome.OK,
        phase=Phase.LATER_STEP,
        tokens_per_second=1000.0,
        required_device_bytes=200 << 20,
        lora_targets=LINEAR if point.lora_rank else None,
        ds_config=deepspeed_config(
            point,
            trainable_parameters=trained,
            largest_parameter=EMBEDDING,
            device="cpu",
            torch_adam=True,
        ),
    )
    return Winner(
        study=f"{MODEL}-check",
        model=resolve_model(MODEL),
        seq_len=SEQ_LEN,
        global_batch=None,
        device="cpu",
        point=point,
        result=result,
        lora_targets=None,
        gpu_budget_bytes=1 << 30,
        load_weights=False,
        created="2026-01-01T00:00:00+00:00",
        command=f"autotune run --model {MODEL} --device cpu",
    )


def expected(one: Winner, trainer: str) -> dict[str, Any]:
    """What the trainer's live objects must say: the winner, and where the file says otherwise, the file."""
    point, config = one.point, one.ds_config
    lossless = trainer in ("script", "deepspeed")
    fp32_adapters = trainer == "llamafactory" and point.lora_rank > 0 and point.zero_stage == 3
    share = point.checkpoint_fraction if lossless else float(point.checkpoint_fraction > 0)
    found: dict[str, Any] = {
        "micro_batch_size": point.micro_batch_size,
        "gradient_accumulation_steps": point.gradient_accumulation_steps,
        "gradient_clipping": config["gradient_clipping"],
        "precision": point.precision,
        "zero_stage": point.zero_stage,
        "offload": point.offload,
        "reduce_bucket_size": config["zero_optimization"]["reduce_bucket_size"] if point.zero_stage else None,
        "steps": 2,
        "lora_rank": point.lora_rank,
        "lora_alpha": 2 * point.lora_rank,
        "lora_targets": list(one.target_modules or ()),
        "lora_dropout": 0.0,
        "quantization": "nf4 double" if point.quantization == "nf4" else point.quantization,
        "checkpoint_fraction": share,
        "optimizer": point.optimizer,
        "attention": point.attention,
        "trained_dtypes": ["float32" if fp32_adapters else DTYPES[point.precision]],
        "shapes": [[point.micro_batch_size, one.seq_len]],
    }
    if share:
        # As its file says.
        forced = trainer == "trl" and point.lora_rank > 0 and point.zero_stage == 3
        found["use_reentrant"] = forced
    if point.quantization == "nf4":
        found["compute_dtype"] = "bfloat16"
    return found
