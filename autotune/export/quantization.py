"""The winner's quantised base as transformers' BitsAndBytesConfig takes it."""

from __future__ import annotations

from typing import Any

from autotune.export.winner import Winner

DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def quantization_settings(winner: Winner) -> dict[str, Any] | None:
    """Keyword arguments of `transformers.BitsAndBytesConfig`; None where the base is not quantised.

    What is not in them has transformers' default: the output head stays in the compute precision, int8 has
    the outlier threshold 6. Checked with transformers 5.17.0.
    """
    point = winner.point
    if point.quantization == "none":
        return None
    if point.quantization == "int8":
        return {"load_in_8bit": True}
    return {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": DTYPE_NAMES[point.precision],
    }
