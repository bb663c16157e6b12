"""The knobs and their values as the report's reader reads them."""

from __future__ import annotations

from typing import Any

from trials.wire import Point

KNOB_WORDS = {
    "micro_batch_size": "micro batch",
    "gradient_accumulation_steps": "gradient accumulation",
    "precision": "precision",
    "checkpoint_fraction": "activation checkpointing",
    "zero_stage": "ZeRO stage",
    "offload": "offload",
    "lora_rank": "LoRA rank",
    "quantization": "quantization",
    "optimizer": "optimizer",
    "attention": "attention",
    "liger_kernel": "Liger kernels",
    "zero_bucket_elements": "ZeRO bucket",
    "method": "method",
    "tokens_per_step": "tokens per step",
}
METHOD_WORDS = {
    "full": "full fine-tuning",
    "lora": "LoRA",
    "qlora": "QLoRA",
    "any": "any method",
    "auto": "LoRA, or QLoRA where LoRA does not fit",
}
SHORT_WORDS = {
    "gradient_accumulation_steps": "accumulation",
    "checkpoint_fraction": "checkpointing",
    "liger_kernel": "Liger",
}


def knob_words(knob: str) -> str:
    """A knob's name; of several fields joined with `+`, all of them."""
    return " and ".join(KNOB_WORDS.get(field, field) for field in knob.split("+"))


def short_words(knob: str) -> str:
    """A knob's name for the narrow place above an axis."""
    return SHORT_WORDS.get(knob, KNOB_WORDS.get(knob, knob))


def value_words(knob: str, value: Any) -> str:
    """A knob's value."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if knob == "checkpoint_fraction":
        return "none" if value == 0 else "every layer" if value == 1 else f"{value:.0%} of layers"
    if knob == "lora_rank" and value == 0:
        return "full"
    return f"{value:,}" if isinstance(value, int) else str(value)


def point_rows(point: Point) -> list[tuple[str, str]]:
    """The knobs of a point with their values; a rank only with LoRA, buckets only where they were set."""
    values = point.model_dump(mode="json")
    rows = [
        (knob_words(knob), value_words(knob, value))
        for knob, value in values.items()
        if value is not None and not (knob == "lora_rank" and value == 0)
    ]
    return [("method", METHOD_WORDS[point.method]), *rows]
