"""What a training script of a rival needs to know, and how it builds the model: the same for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trials.wire import Device, ModelSpec, Point, Precision, Strict


class TrainingJob(Strict):
    """Sizes in bytes. Travels as a JSON file."""

    model: ModelSpec
    lora_rank: int
    seq_len: int
    global_batch: int
    budget_bytes: int
    outside_allocator_bytes: int
    device: Device
    seed: int = 0


def read_job(path: Path) -> TrainingJob:
    """The job in a file."""
    return TrainingJob.model_validate_json(path.read_text())


def limit_memory(job: TrainingJob) -> None:
    """Cap this process' device memory at the budget, exactly as a trial of ours is capped."""
    from trials.device_memory import CpuMemory, CudaMemory

    memory = CudaMemory() if job.device == "cuda" else CpuMemory()
    memory.limit(job.budget_bytes, job.outside_allocator_bytes)


def build(job: TrainingJob, precision: Precision, *, fp32_adapters: bool) -> Any:
    """The model with random weights on its device, with LoRA adapters where the job has a rank.

    Args:
        job: what to build.
        precision: of the weights; a LoRA base is given in bf16.
        fp32_adapters: peft's default, for trainers that keep no master of their own.
    """
    import torch

    from trials.adapters import ALPHA_PER_RANK, add_adapters
    from trials.model_build import build_model

    torch.manual_seed(job.seed)
    if job.device == "cuda":
        torch.set_float32_matmul_precision("high")
    point = Point(precision=precision, lora_rank=job.lora_rank)
    model = build_model(job.model, point, device=torch.device(job.device))
    if job.lora_rank and fp32_adapters:
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            r=job.lora_rank,
            lora_alpha=ALPHA_PER_RANK * job.lora_rank,
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
            target_modules="all-linear",
        )
        model = get_peft_model(model, config)
    elif job.lora_rank:
        model = add_adapters(model, point, None)
    model.train()
    return model
