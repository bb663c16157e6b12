"""A rough speed from first principles: enough to rank what fits, no promise. `autotune run` measures.

Time of a micro batch is the longer of its arithmetic and of launching its kernels; to it come the optimizer
step and what offload moves. Rates are published peaks times a usual efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.models import model_limits
from trials.wire import ModelSpec, Point

# Large matrix products in training reach about half of the tensor peak once everything around them counts.
MATMUL_EFFICIENCY = 0.5
# Launching one decoder layer's forward and backward: measured on an H200 host (h200_grid_lora.jsonl and
# h200_memory.jsonl, micro batch 1): 28 layers with seven adapters each 0.18 s, 24 full layers 0.08 s.
LAYER_LAUNCH_SECONDS = 3.3e-3
ADAPTER_LAUNCH_SECONDS = 3.1e-3
# A recomputed layer's forward, as a share of its forward and backward launches.
RECOMPUTE_SHARE = 0.35
PCIE_LANE_BYTES_PER_SECOND = {3: 0.8e9, 4: 1.6e9, 5: 3.2e9, 6: 6.4e9}
CPU_ADAM_BYTES_PER_SECOND = 20e9


@dataclass(frozen=True)
class Rates:
    """What a GPU does at best, per second.

    Attributes:
        flops: 16-bit tensor peak.
        fp32_flops: peak of fp32 (TF32 where there is such).
        memory_bytes: device memory bandwidth.
        host_bytes: host to device.
    """

    flops: float = 990e12
    fp32_flops: float = 495e12
    memory_bytes: float = 4.8e12
    host_bytes: float = 51e9


def rates_of(gpu_name: str) -> Rates:
    """The published rates of a GPU in the shipped table."""
    from autotune.gpus import find_gpu

    gpu = find_gpu(gpu_name)
    return Rates(
        flops=gpu.bf16_flops,
        fp32_flops=gpu.bf16_flops / 2 if gpu.bf16 else gpu.fp32_flops,
        memory_bytes=gpu.memory_bandwidth_bytes_per_second,
        host_bytes=PCIE_LANE_BYTES_PER_SECOND[gpu.pcie_generation] * gpu.pcie_lanes,
    )


def estimated_tokens_per_second(
    model: ModelSpec,
    seq_len: int,
    point: Point,
    *,
    total_parameters: int,
    trainable_parameters: int,
    rates: Rates,
    processes: int = 1,
) -> float:
    """Tokens per second of all processes together, by the model above."""
    layers = model_limits(model).num_layers
    tokens = point.micro_batch_size * seq_len
    # Two operations per parameter forward, twice that backward; a frozen weight has no gradient.
    per_parameter = (6.0 if point.lora_rank == 0 else 4.0) + 2.0 * point.checkpoint_fraction
    hidden = int(model.config.get("hidden_size") or model.config.get("n_embd") or 0)
    attention = 6.0 * layers * hidden * seq_len
    flops = tokens * (per_parameter * total_parameters + attention)
    rate = rates.fp32_flops if point.precision == "fp32" else rates.flops
    arithmetic = flops / (rate * MATMUL_EFFICIENCY)
    launch = LAYER_LAUNCH_SECONDS + (ADAPTER_LAUNCH_SECONDS if point.lora_rank else 0.0)
    if point.quantization != "none":
        # Dequantised twice a layer: a read of the codes, a write and a read of 2 bytes.
        arithmetic += 2 * total_parameters * 4.5 / rates.memory_bytes
        launch *= 1.3
    launching = layers * launch * (1 + RECOMPUTE_SHARE * point.checkpoint_fraction)
    # The fused loss saves the logits' traffic.
    vocabulary = int(model.config.get("vocab_size") or 0)
    logits = 0.0 if point.liger_kernel else 40.0 * tokens * vocabulary / rates.memory_bytes
    micro_batch = max(arithmetic + logits, launching)
    step = _step_seconds(point, trainable_parameters, rates, processes)
    if point.offload.endswith("+parameters"):
        micro_batch += 2 * 2 * total_parameters / rates.host_bytes
    steps = point.gradient_accumulation_steps
    return tokens * steps * processes / (steps * micro_batch + step)


def _step_seconds(point: Point, trainable_parameters: int, rates: Rates, processes: int) -> float:
    mine = trainable_parameters / (processes if point.zero_stage else 1)
    if point.offload == "none":
        return 32 * mine / rates.memory_bytes
    seconds = 4 * mine / rates.host_bytes + 28 * mine / CPU_ADAM_BYTES_PER_SECOND
    return seconds * (10 if point.offload.startswith("nvme_") else 1)
