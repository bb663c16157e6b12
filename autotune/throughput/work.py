"""What a configuration has to do, as seconds at the machine's rates: one column for each coefficient.

Every formula counts operations, bytes or launches and divides by a rate. Sources: FlashAttention-2 (Dao
2023) for attention; Korthikanti et al. 2022 for what a layer's activations are; transformers' decoder layers,
peft's LoRA layer and DeepSpeed 0.19.8's optimizers, read for what they launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.throughput.coefficients import COEFFICIENTS, INDEX, Vector
from autotune.throughput.rates import H200_RATES, Rates
from autotune.throughput.shape import ModelShape, shape_of
from trials.wire import ModelSpec, Point

# Operations that a decoder layer launches forward: norms, rotary embedding, residuals, activation, reshapes.
LAYER_LAUNCHES = 25
# Of these liger's kernels replace about ten; each of its four costs as much as eight operations, for Triton
# launches it from Python.
REPLACED_BY_LIGER = 10
LIGER_LAUNCHES = 32
MATRIX_LAUNCHES = 1
# Forward and backward over forward alone.
BOTH_WAYS = 3.0
# peft: two small products, a scale, an addition.
ADAPTER_LAUNCHES = 4
NF4_LAUNCHES = 2
INT8_LAUNCHES = 8
HOOK_LAUNCHES = 2
PARTITIONING_LAUNCHES = 30
LOSS_LAUNCHES = 80
STEP_LAUNCHES = 6
# bitsandbytes updates tensor by tensor from Python: on H200s an 8-bit step took longer by the time of about
# so many launches a tensor, with LoRA as in full fine-tuning.
BITSANDBYTES_LAUNCHES = 5
EXPERT_LAUNCHES = 40
# Each logit is written in 16 bits, upcast, shifted and normalised in fp32, and the same back: so many bytes
# are written and read for it. The fused loss works on pieces that stay in the cache for part of that.
LOGIT_BYTES = 64.0
LIGER_LOGIT_BYTES = 20.0
# Accumulating a gradient on the host moves so many of the bytes that Adam's update moves there.
ACCUMULATION_OF_ADAM = 10 / 28


@dataclass(frozen=True)
class Training:
    """What is trained, and on what: all that speed depends on beside the point.

    Attributes:
        model: with its configuration.
        seq_len: tokens per sequence.
        rates: the machine's.
        processes: data-parallel processes.
        lora_targets: adapted modules; None for all linear layers except the head.
        total_parameters: as counted; None: as the configuration says.
    """

    model: ModelSpec
    seq_len: int
    rates: Rates = H200_RATES
    processes: int = 1
    lora_targets: tuple[str, ...] | None = None
    total_parameters: int | None = None

    def shape(self) -> ModelShape:
        """The model's sizes."""
        return shape_of(self.model, self.total_parameters)


@dataclass(frozen=True)
class Work:
    """The times of several points.

    Attributes:
        seconds: (points, coefficients): of one micro batch, or of the step, at the machine's rates.
        accumulation: (points): micro batches per optimizer step.
        tokens: (points): per optimizer step, over all processes.
    """

    seconds: Vector
    accumulation: Vector
    tokens: Vector

    def __len__(self) -> int:
        return len(self.tokens)


def work_of(training: Training, points: Sequence[Point]) -> Work:
    """The work of each point.

    Args:
        training: what is trained, on what.
        points: in any order.
    """
    knobs = _Knobs(training, points)
    seconds = np.zeros((len(points), len(COEFFICIENTS)))
    for parts in (_device(knobs), _host(knobs), _wait(knobs), _step(knobs)):
        for name, values in parts.items():
            seconds[:, INDEX[name]] = values
    sequences = knobs.micro_batch * knobs.accumulation * training.processes
    return Work(seconds, knobs.accumulation, sequences * training.seq_len)


class _Knobs:
    """The points' fields as columns, with the sizes that most formulas need."""

    def __init__(self, training: Training, points: Sequence[Point]) -> None:
        self.training, self.rates, self.shape = training, training.rates, training.shape()
        self.micro_batch = np.array([float(p.micro_batch_size) for p in points])
        self.accumulation = np.array([float(p.gradient_accumulation_steps) for p in points])
        self.recomputed = np.array([p.checkpoint_fraction for p in points])
        self.rank = np.array([float(p.lora_rank) for p in points])
        self.full = self.rank == 0
        self.stage = np.array([p.zero_stage for p in points])
        self.width = np.array([4.0 if p.precision == "fp32" else 2.0 for p in points])
        self.liger = np.array([p.liger_kernel for p in points], dtype=bool)
        self.eager = np.array([p.attention == "eager" for p in points], dtype=bool)
        self.nf4 = np.array([p.quantization == "nf4" for p in points], dtype=bool)
        self.int8 = np.array([p.quantization == "int8" for p in points], dtype=bool)
        self.state8 = np.array([p.optimizer != "adamw" for p in points], dtype=bool)
        self.offload = np.array([p.offload != "none" for p in points], dtype=bool)
        self.out_parameters = np.array([p.offload.endswith("+parameters") for p in points], dtype=bool)
        self.nvme = np.array([p.offload.startswith("nvme_") for p in points], dtype=bool)
        self.tokens = self.micro_batch * training.seq_len
        adapted = self.shape.adapted(training.lora_targets)
        # Experts share one adapted module each kind, which holds the adapters of all.
        self.adapters = len(adapted)
        self.adapter_features = float(sum((m.rows + m.columns) * m.active for m in adapted))
        adapter_elements = float(sum((m.rows + m.columns) * m.copies for m in adapted))
        layers, shape = self.shape.layers, self.shape
        self.trained = np.where(self.full, shape.total_parameters, layers * self.rank * adapter_elements)
        tensors = layers * (len(shape.matrices) + 2.0)
        self.trained_tensors = np.where(self.full, tensors + 2.0, layers * 2.0 * self.adapters)
        self.modules = layers * (len(shape.matrices) + 3.0 + np.where(self.full, 0.0, 3.0 * self.adapters))
        self.experts = max(m.copies for m in shape.matrices) > 1


def _device(k: _Knobs) -> dict[str, Vector]:
    """What the GPU computes and moves in one micro batch."""
    shape, rates, tokens = k.shape, k.rates, k.tokens
    # Two operations per weight and token forward, as many for the input's gradient, as many for the weight's.
    passes = np.where(k.full, 3.0, 2.0)
    layers = 2.0 * tokens * shape.layers * shape.active_parameters * (passes + k.recomputed)
    head = 2.0 * tokens * shape.head_parameters * passes
    adapters = np.where(k.full, 0.0, 2.0 * tokens * shape.layers * k.rank * k.adapter_features)
    rate = np.where(k.width == 4.0, rates.fp32_matmul_flops, rates.matmul_flops)
    size = (tokens * shape.typical_size**2) ** (1 / 3)
    head_size = (tokens * shape.hidden * shape.vocabulary) ** (1 / 3)
    matmul = layers * (1 + rates.matmul_half_size / size) + head * (1 + rates.matmul_half_size / head_size)
    # Weights are read however few tokens there are.
    weights = k.width * (shape.layers * shape.active_parameters * (passes + k.recomputed))
    seen = min(k.training.seq_len, shape.window or k.training.seq_len)
    # Half of the scores are masked and skipped; backward is 2.5 times forward.
    scores = 2.0 * tokens * seen * shape.attention_width * shape.layers
    attention = scores * (3.5 + k.recomputed) * np.where(k.eager, 2.0, 1.0)
    # Eager attention writes and reads its scores several times over.
    written = np.where(k.eager, 12.0 * k.width * tokens * seen * shape.heads * shape.layers, 0.0)
    traffic = _activation_bytes(k) + weights + _gradient_bytes(k)
    logits = tokens * shape.vocabulary * np.where(k.liger, LIGER_LOGIT_BYTES, LOGIT_BYTES)
    # Dequantised for each product: codes read, 16 bits written and read.
    frozen = shape.layers * shape.layer_parameters
    nf4 = np.where(k.nf4, frozen * (0.5 + 2 * k.width) * (2.0 + k.recomputed), 0.0)
    int8 = np.where(k.int8, frozen * 3.0 * (2.0 + k.recomputed), 0.0)
    int8 = int8 + np.where(k.int8, 6.0 * tokens * shape.layers * k.adapter_features, 0.0)
    return {
        "matmul": (matmul + adapters * 2) / rate,
        "attention": attention / rate + written / rates.memory_bytes,
        "traffic": traffic / rates.memory_bytes,
        "logits": logits / rates.memory_bytes,
        "nf4": nf4 / rates.memory_bytes,
        "int8": int8 / rates.memory_bytes,
    }


def _activation_bytes(k: _Knobs) -> Vector:
    """Bytes that the operations between the products read and write in one micro batch."""
    shape = k.shape
    inner = sum(m.columns * m.active for m in shape.matrices if m.name.startswith(("up", "gate")))
    # Per token and layer, forward: two norms with fp32 inside, two residuals, rotary embedding, activation.
    stream = np.where(k.liger, 16.0, 30.0) * shape.hidden + 4.0 * shape.attention_width
    forward = stream + np.where(k.liger, 1.5, 3.0) * inner
    # An adapter reads its input and its module's output, and writes the sum.
    forward = forward + np.where(k.full, 0.0, 3.0 * k.adapter_features)
    moved: Vector = k.width * k.tokens * shape.layers * forward * (BOTH_WAYS + k.recomputed)
    return moved


def _gradient_bytes(k: _Knobs) -> Vector:
    """Bytes that accumulating gradients moves: read, read and written in fp32, or in buckets."""
    moved: Vector = (k.width + 8.0) * k.trained
    return moved


def _host(k: _Knobs) -> dict[str, Vector]:
    """What the host launches in one micro batch."""
    shape, launch = k.shape, k.rates.launch_seconds
    matrices = len(shape.matrices)
    plain = LAYER_LAUNCHES + MATRIX_LAUNCHES * matrices + (EXPERT_LAUNCHES if k.experts else 0)
    forward = plain - np.where(k.liger, float(REPLACED_BY_LIGER), 0.0)
    liger = np.where(k.liger, float(LIGER_LAUNCHES), 0.0)
    adapters = np.where(k.full, 0.0, float(ADAPTER_LAUNCHES * k.adapters))
    each = np.where(k.nf4, float(NF4_LAUNCHES), np.where(k.int8, float(INT8_LAUNCHES), 0.0))
    quantized = each * matrices
    again = 1.0 + k.recomputed / BOTH_WAYS
    partitioned = k.stage == 3
    hooked = (k.stage == 1) | (k.stage == 2)
    per_layer = {
        "launch": forward * BOTH_WAYS,
        "adapters": adapters * BOTH_WAYS,
        # Checkpointing packs and unpacks every saved tensor through Python: a layer costs about twice.
        "recompute": (forward + liger + adapters + quantized) * BOTH_WAYS * k.recomputed,
        "liger": liger * BOTH_WAYS,
        "quantized": quantized * BOTH_WAYS,
    }
    return {name: launch * shape.layers * values for name, values in per_layer.items()} | {
        "hooks": launch * np.where(hooked, HOOK_LAUNCHES * k.trained_tensors, 0.0),
        "partitioning": launch * np.where(partitioned, PARTITIONING_LAUNCHES * k.modules * again, 0.0),
        "loss": launch * LOSS_LAUNCHES * np.ones(len(k.tokens)),
    }


def _wait(k: _Knobs) -> dict[str, Vector]:
    """What one micro batch waits for beside its computation."""
    rates, total = k.rates, k.shape.total_parameters
    base = np.where(k.nf4, 0.55, np.where(k.int8, 1.05, k.width)) * total
    refetch = np.where(k.out_parameters, base * (2.0 + k.recomputed), 0.0)
    kept_out = k.offload & (k.stage >= 2)
    copied = np.where(kept_out, k.width * k.trained, 0.0) / rates.host_bytes
    added = np.where(kept_out & (k.accumulation > 1), ACCUMULATION_OF_ADAM * k.trained, 0.0)
    processes = k.training.processes
    share = (processes - 1) / processes
    # A ring moves each gradient twice (reduced and gathered), a partitioned one once per micro batch.
    partitioned = np.where(k.stage == 3, base * (2.0 + k.recomputed) + k.width * k.trained, 0.0)
    per_micro_batch = np.where(k.stage == 2, k.width * k.trained, partitioned)
    per_step = np.where(k.stage < 2, 2.0, np.where(k.stage == 2, 1.0, 0.0)) * k.width * k.trained
    moved = share * (per_micro_batch + per_step / k.accumulation)
    return {
        "refetch": refetch / rates.host_bytes,
        "gradients_out": copied + added / rates.cpu_adam_parameters,
        "communication": moved / rates.link_bytes,
    }


def _step(k: _Knobs) -> dict[str, Vector]:
    """What the optimizer step does, once whatever the accumulation."""
    rates = k.rates
    mine = k.trained / np.where(k.stage > 0, k.training.processes, 1)
    # Master, two moments and the gradient in fp32, read and written; then the parameters.
    state = np.where(k.state8, 16.0, 32.0) * mine
    on_host = mine / rates.cpu_adam_parameters + k.width * mine / rates.host_bytes
    return {
        "step_launch": rates.launch_seconds * STEP_LAUNCHES * k.trained_tensors,
        "step_bitsandbytes": rates.launch_seconds
        * np.where(k.state8, float(BITSANDBYTES_LAUNCHES), 0.0)
        * k.trained_tensors,
        "step_memory": np.where(k.offload, 0.0, state) / rates.memory_bytes,
        "cpu_adam": np.where(k.offload, on_host, 0.0),
        "nvme": np.where(k.nvme, 24.0 * mine / rates.nvme_bytes, 0.0),
    }
