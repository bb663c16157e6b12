"""What the usual estimators say of a configuration, to be compared with the same measurements.

- `accelerate estimate-memory` (1.15.0): its own function, given the model's size in fp32; it knows neither
  batch nor sequence, LoRA nor ZeRO.
- DeepSpeed's `estimate_zero2_model_states_mem_needs` and `estimate_zero3_...` (0.19.8): model states alone.
- The formula for activations that people repeat, 34 x s x b x h x L bytes in 16 bit (Korthikanti et al. 2022,
  with the attention matrix left out as fused attention does), 2 x s x b x h x L where every layer is
  recomputed, on top of 16 bytes per trained and 2 per frozen parameter.
"""

from __future__ import annotations

from autotune.models import model_limits
from benchmarks.memory.rows import Row

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def others(row: Row, *, total_parameters: int, trainable_parameters: int) -> dict[str, int]:
    """Estimates of the peak in bytes, by the estimator's name; only of those that claim to cover the row."""
    found = {
        "accelerate estimate-memory": _accelerate(row, total_parameters),
        "16 N + 34 s b h L": _formula(row, total_parameters, trainable_parameters),
    }
    zero = _deepspeed(row, total_parameters)
    if zero is not None:
        found["DeepSpeed's estimate_zero*"] = zero
    return found


def _accelerate(row: Row, total_parameters: int) -> int:
    from accelerate.commands.estimate import estimate_training_usage

    return int(max(estimate_training_usage(4 * total_parameters, DTYPES[row.point.precision]).values()))


def _deepspeed(row: Row, total_parameters: int) -> int | None:
    point = row.point
    offloaded = point.offload != "none"
    if point.zero_stage in (1, 2):
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

        return int(estimate_zero2_model_states_mem_needs(total_parameters, cpu_offload=offloaded)[1])
    if point.zero_stage == 3:
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

        config = row.model.config
        largest = int(config.get("vocab_size", 0)) * int(
            config.get("hidden_size") or config.get("n_embd") or 0
        )
        parameters = point.offload.endswith("+parameters")
        return int(
            estimate_zero3_model_states_mem_needs(
                total_parameters, largest, cpu_offload=offloaded, cpu_offload_params=parameters
            )[1]
        )
    return None


def _formula(row: Row, total_parameters: int, trainable_parameters: int) -> int:
    point, config = row.point, row.model.config
    hidden = int(config.get("hidden_size") or config.get("n_embd") or 0)
    layers = model_limits(row.model).num_layers
    tokens = point.micro_batch_size * row.seq_len
    kept = 34 * (1 - point.checkpoint_fraction) + 2 * point.checkpoint_fraction
    width = 2 if point.precision == "fp32" else 1
    weight = {"nf4": 0.5, "int8": 1.0}.get(point.quantization, 2.0 * width)
    states = 16 * trainable_parameters + weight * (total_parameters - trainable_parameters)
    return int(states + kept * width * tokens * hidden * layers)
