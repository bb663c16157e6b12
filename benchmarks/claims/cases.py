"""The claims, made precise: the cases that decide each."""

from __future__ import annotations

from dataclasses import dataclass

from trials.wire import Point

GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """One configuration that a claim is about, and the memory it is claimed to fit.

    Attributes:
        model: a card.
        point: the configuration.
        seq_len: tokens per sequence.
        budget_gib: device memory of one GPU.
        gpus: data-parallel GPUs.
    """

    model: str
    point: Point
    seq_len: int
    budget_gib: int
    gpus: int = 1


@dataclass(frozen=True)
class Claim:
    """What people say, and the cases that decide it."""

    text: str
    cases: tuple[Case, ...]


def claims() -> tuple[Claim, ...]:
    """The claims of forum threads, made precise: bf16, SDPA, accumulation of two, AdamW unless said."""
    everything = {"zero_stage": 3, "offload": "optimizer+parameters"}
    recomputed = {"checkpoint_fraction": 1.0, "gradient_accumulation_steps": 2}
    full = Point(**everything, **recomputed)  # type: ignore[arg-type]
    qlora = {"lora_rank": 64, "quantization": "nf4", "optimizer": "paged_adamw8bit", **recomputed}
    two = Point(micro_batch_size=2, **qlora)  # type: ignore[arg-type]
    one = Point(**{**qlora, "lora_rank": 16})  # type: ignore[arg-type]
    partitioned = Point(lora_rank=64, quantization="nf4", **everything, **recomputed)  # type: ignore[arg-type]
    kept = Point(micro_batch_size=4, lora_rank=16, gradient_accumulation_steps=2)
    zero2 = Point(zero_stage=2, **recomputed)  # type: ignore[arg-type]
    return (
        Claim("A 7B model can be fully fine-tuned on one 40 GB card with ZeRO-3 and offload", (
            Case("llama2-7b", full, 1024, 40),
        )),
        Claim("A 7B model can be fully fine-tuned in 24 GB", (
            Case("llama2-7b", full, 1024, 24),
            Case("llama2-7b", Point(optimizer="adamw8bit", **recomputed), 1024, 24),  # type: ignore[arg-type]
        )),
        Claim("QLoRA of a 7B model, rank 64, batch 2, 1,024 tokens: 24, 16 and 8 GB are enough", (
            Case("llama2-7b", two, 1024, 24),
            Case("llama2-7b", two, 1024, 16),
            Case("llama2-7b", two, 1024, 8),
        )),
        Claim("QLoRA of a 13B model fits 16 GB with ZeRO-3 and offload", (
            Case("llama2-13b", partitioned, 1024, 16),
            Case("llama2-13b", one, 1024, 16),
        )),
        Claim("QLoRA of a 65B to 70B model fits one 48 GB card (and not 24 GB)", (
            Case("llama2-70b", one, 512, 48),
            Case("llama2-70b", one, 512, 24),
        )),
        Claim("A 13B model can be fully fine-tuned on two 24 GB cards with ZeRO-2", (
            Case("llama2-13b", zero2, 1024, 24, gpus=2),
        )),
        Claim("ZeRO-2 on one GPU saves optimizer memory", (
            Case("qwen2.5-1.5b", Point(**recomputed), 1024, 80),  # type: ignore[arg-type]
            Case("qwen2.5-1.5b", zero2, 1024, 80),
        )),
        Claim("Checkpointing every layer saves 60 to 80 % of the activations", (
            Case("llama2-7b", kept, 1024, 80),
            Case("llama2-7b", Point(micro_batch_size=4, lora_rank=16, **recomputed), 1024, 80),  # type: ignore[arg-type]
        )),
    )  # fmt: skip
