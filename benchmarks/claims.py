"""`python -m benchmarks.claims`: checks memory claims that people repeat, and writes docs/claims.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.models import resolve_model
from autotune.planning.outlook import Budgets, broken_limit
from autotune.prediction import Prediction, Predictor
from autotune.sizes import format_size
from trials.wire import Point

PAGE = Path(__file__).parent.parent / "docs" / "claims.md"
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


def main() -> None:
    """Predict every case and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE)
    arguments = parser.parse_args()
    lines = [
        "# Claims that people repeat, checked",
        "",
        "Made by `python -m benchmarks.claims`. Every figure is predicted, with an H200's share outside the",
        "allocator counted; none of these cases has been measured under a cap yet.",
        "",
    ]
    with Predictor(workers=1) as predictor:
        for claim in claims():
            lines += _section(claim, predictor)
            print("\n".join(lines[-(len(claim.cases) + 6) :]), flush=True)
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text("\n".join(lines))


def _section(claim: Claim, predictor: Predictor) -> list[str]:
    predictions = [
        predictor.predict(resolve_model(case.model), case.seq_len, case.point, processes=case.gpus)
        for case in claim.cases
    ]
    rows = [
        f"| {case.model} | {_words(case)} | {case.budget_gib} GiB "
        f"| {format_size(found.required_device_bytes)} | {format_size(found.host_peak_bytes)} "
        f"| {'yes' if _fits(case, found) else 'no'} |"
        for case, found in zip(claim.cases, predictions, strict=True)
    ]
    header = "| model | configuration | budget | needs | host memory | fits |"
    return [
        f"## {claim.text}",
        "",
        f"**{_verdict(claim.cases, predictions)}**",
        "",
        header,
        "| --- | --- | ---: | ---: | ---: | --- |",
        *rows,
        "",
    ]


def _fits(case: Case, prediction: Prediction) -> bool:
    return broken_limit(prediction, Budgets(case.budget_gib * GIB)) is None


def _verdict(cases: Sequence[Case], predictions: Sequence[Prediction]) -> str:
    """True, false, or true when: what the cases say together."""
    if len(cases) == 2 and len({case.budget_gib for case in cases}) == 1 and cases[0].budget_gib == 80:
        first, second = (prediction.peak_allocated_bytes for prediction in predictions)
        saved = first - second
        if cases[0].point.zero_stage != cases[1].point.zero_stage:
            states = [prediction.breakdown.get("optimizer state", 0) for prediction in predictions]
            state = (
                "the state is whole on one GPU" if states[0] <= states[1] * 1.01 else "the state is smaller"
            )
            word = "False" if states[0] <= states[1] * 1.01 else "True"
            step = f"; other step buffers take the peak from {format_size(first)} to {format_size(second)}"
            return f"{word}: {state}{step if saved > 0.01 * first else ''}."
        kept, left = (_activations(prediction) for prediction in predictions)
        share = 1 - left / kept
        word = "True" if 0.6 <= share <= 0.8 else "True when other parts dominate; here"
        return f"{word}: {share:.0%} of what depends on the batch is saved at the peak."
    fits = [_fits(case, prediction) for case, prediction in zip(cases, predictions, strict=True)]
    hosts = max(prediction.host_peak_bytes for prediction in predictions)
    needs_host = f", given {format_size(hosts)} of host memory" if hosts > 16 * GIB else ""
    if all(fits):
        return f"True{needs_host}."
    return f"True when: see which rows fit{needs_host}." if any(fits) else "False."


def _activations(prediction: Prediction) -> int:
    parts = ("activations", "logits")
    return sum(size for name, size in prediction.breakdown.items() if name.startswith(parts))


def _words(case: Case) -> str:
    point = case.point
    words = [point.method, f"micro batch {point.micro_batch_size}", f"{case.seq_len:,} tokens"]
    words += [f"rank {point.lora_rank}"] if point.lora_rank else []
    words += [f"ZeRO-{point.zero_stage}"] if point.zero_stage else []
    words += [f"offload {point.offload}"] if point.offload != "none" else []
    words += [point.optimizer] if point.optimizer != "adamw" else []
    words += [f"checkpointing {point.checkpoint_fraction:g}"] if point.checkpoint_fraction else []
    words += [f"{case.gpus} GPUs"] if case.gpus > 1 else []
    return ", ".join(words)


if __name__ == "__main__":
    main()
