"""What is fixed while a space is searched: the user's wishes, and what the machine and the model can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.space.trainers import check_trainer
from trials.wire import Device

RequestedMethod = Literal["auto", "full", "lora", "qlora", "any"]


@dataclass(frozen=True)
class Capabilities:
    """What this machine, its installed packages and the model allow.

    Attributes:
        device: where trials run.
        bf16: whether it computes in bf16.
        fp16: whether it computes in fp16 (DeepSpeed refuses fp16 on the CPU whatever this says).
        flash_attention_2: whether the package is installed and the GPU is recent enough for it.
        liger: whether liger-kernel is installed and knows the model.
        bitsandbytes: whether it is installed (quantization and 8-bit optimizers).
        nvme: whether there is a folder for NVMe offload, and the library that DeepSpeed needs for it.
        refused_attentions: attention implementations that the model refuses.
    """

    device: Device
    bf16: bool = True
    fp16: bool = False
    flash_attention_2: bool = False
    liger: bool = False
    bitsandbytes: bool = False
    nvme: bool = False
    refused_attentions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What the user fixed.

    Attributes:
        method: auto means LoRA here; falling back to QLoRA is the tuning's decision.
        global_batch: sequences per optimizer step over all GPUs; None: searched.
        exact_global_batch: whether a point may miss it by up to 10 %.
        gpus: processes that share the global batch.
        min_rank: smallest LoRA rank that is good enough; full fine-tuning is not touched by it.
        capabilities: of the machine and the model.
        trainer: the trainer that the winner must run in; None: any.
        num_layers: decoder layers of the model, where known: two shares that recompute equally many layers
            are then one point.

    Raises:
        UsageError: there is no such trainer.
    """

    method: RequestedMethod
    global_batch: int | None
    exact_global_batch: bool
    gpus: int
    min_rank: int
    capabilities: Capabilities
    trainer: str | None = None
    num_layers: int | None = None

    def __post_init__(self) -> None:
        assert self.method in ("auto", "full", "lora", "qlora", "any"), self.method
        assert self.gpus >= 1 and (self.global_batch is None or self.global_batch >= 1) and self.min_rank >= 0
        check_trainer(self.trainer)
