"""What is trained, and under which conditions: the same for every contender."""

from __future__ import annotations

from typing import Literal

from autotune.models import resolve_model
from autotune.space.batch import accumulation_steps
from trials.wire import Device, ModelSpec, Point, Strict

DEFAULT_CASES = ("qwen2.5-0.5b:full", "qwen2.5-1.5b:lora")
RANK = 16
GIB = 1 << 30


class Case(Strict):
    """A model and how it is fine-tuned; LoRA has rank 16 on every linear layer but the head."""

    model: str
    method: Literal["full", "lora"]

    @property
    def name(self) -> str:
        """As rows and tables call it."""
        return f"{self.model}:{self.method}"

    @property
    def lora_rank(self) -> int:
        """0 for full fine-tuning."""
        return RANK if self.method == "lora" else 0

    def spec(self) -> ModelSpec:
        """The model's configuration, from its shipped card."""
        return resolve_model(self.model)


class Setting(Strict):
    """The conditions. Sizes in bytes."""

    seq_len: int = 1024
    global_batch: int = 32
    budget_bytes: int = 24 * GIB
    device: Device = "cuda"

    def point(
        self,
        case: Case,
        micro_batch_size: int,
        *,
        checkpoint_fraction: float = 0.0,
        zero_stage: Literal[0, 1, 2, 3] = 0,
        zero_bucket_elements: int | None = None,
    ) -> Point:
        """A contender's choice as a point, its accumulation the one nearest to the global batch."""
        return Point(
            micro_batch_size=micro_batch_size,
            gradient_accumulation_steps=accumulation_steps(self.global_batch, micro_batch_size, 1),
            checkpoint_fraction=checkpoint_fraction,
            zero_stage=zero_stage,
            zero_bucket_elements=zero_bucket_elements,
            lora_rank=case.lora_rank,
        )


def parse_case(text: str) -> Case:
    """`model:method` as a case.

    Raises:
        ValueError: it has another form, or an unknown method.
    """
    model, colon, method = text.rpartition(":")
    if not colon or method not in ("full", "lora"):
        raise ValueError(f"{text!r} is not model:full or model:lora")
    return Case.model_validate({"model": model, "method": method})
