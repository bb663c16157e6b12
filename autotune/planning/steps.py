"""The single changes of a configuration that take less memory, by kind, the mildest of each kind first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autotune.space import Capabilities, Setting, violation
from autotune.space.batch import accumulation_steps
from trials.wire import Point

MICRO_BATCHES = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
FRACTIONS = (0.25, 0.5, 0.75, 1.0)
RANKS = (128, 64, 32, 16, 8)
ADAPTER_RANK = 16


@dataclass(frozen=True)
class Step:
    """One change.

    Attributes:
        kind: which knob is turned; of one kind the mildest that is enough is what a user wants to know.
        point: the configuration after it.
        quality: what it changes in what is learned; empty where it only costs speed.
    """

    kind: str
    point: Point
    quality: str = ""


def setting_of_any_machine(gpus: int) -> Setting:
    """A machine that can do everything: what it cannot run, none can."""
    everything = Capabilities(
        device="cuda", bf16=True, fp16=True, flash_attention_2=True, liger=True, bitsandbytes=True, nvme=True
    )
    return Setting(
        method="any",
        global_batch=None,
        exact_global_batch=False,
        gpus=gpus,
        min_rank=1,
        capabilities=everything,
        trainer=None,
    )


def single_steps(point: Point, gpus: int = 1) -> list[Step]:
    """What could be changed in a configuration to save device memory; each is possible on some machine."""
    setting = setting_of_any_machine(gpus)
    return [
        step for step in _steps(point, gpus) if step.point != point and not violation(step.point, setting)
    ]


def changes(before: Point, after: Point) -> dict[str, Any]:
    """The fields in which the second point differs, and its values."""
    return {
        name: getattr(after, name)
        for name in Point.model_fields
        if getattr(after, name) != getattr(before, name)
    }


def _steps(point: Point, gpus: int) -> Iterator[Step]:
    def changed(kind: str, quality: str = "", **values: Any) -> Step:
        return Step(kind, point.model_copy(update=values), quality)

    sequences = point.micro_batch_size * point.gradient_accumulation_steps
    for size in MICRO_BATCHES:
        if size < point.micro_batch_size:
            steps = accumulation_steps(sequences, size, 1)
            yield changed("micro batch", micro_batch_size=size, gradient_accumulation_steps=steps)
    for fraction in FRACTIONS:
        if fraction > point.checkpoint_fraction:
            yield changed("checkpointing", checkpoint_fraction=fraction)
    if not point.liger_kernel:
        yield changed("fused kernels", liger_kernel=True)
    if point.attention == "eager":
        yield changed("attention", attention="sdpa")
    for stage in (1, 2, 3):
        if stage > point.zero_stage:
            yield changed("ZeRO stage", zero_stage=stage)
    if point.offload == "none":
        yield changed("offload", offload="optimizer", zero_stage=max(2, point.zero_stage))
    if point.offload in ("none", "optimizer"):
        yield changed("offload", offload="optimizer+parameters", zero_stage=3)
    if point.precision == "fp32":
        yield changed("precision", "16 bits compute instead of 32", precision="bf16")
    if point.optimizer == "adamw":
        yield changed("optimizer", "its state is kept in 8 bits", optimizer="adamw8bit")
    for rank in RANKS:
        if 0 < rank < point.lora_rank:
            yield changed("rank", "fewer parameters learn", lora_rank=rank)
    if point.lora_rank == 0:
        yield changed("method", "only adapters learn", lora_rank=ADAPTER_RANK)
        yield changed(
            "method",
            "only adapters learn, over a base in 4 bits",
            lora_rank=ADAPTER_RANK,
            quantization="nf4",
        )
    elif point.quantization != "nf4":
        yield changed("quantization", "the base is kept in 4 bits", quantization="nf4")
