"""What each trainer can express of a point, knob by knob: for `--trainer`, and for what an export loses.

Read in the trainers' own sources: transformers 5.17.0, accelerate 1.15.0, peft 0.21.2, TRL 1.16.0,
LLaMA-Factory 0.9.5, axolotl 0.19.0, ms-swift 4.6.0. `script` is the train.py that is exported; `deepspeed` is
a loop of the user's own around the DeepSpeed configuration, which can do whatever train.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from autotune.errors import UsageError
from trials.wire import Point

# The name on the command line, and what the trainer calls itself.
TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepspeed": "DeepSpeed",
        "transformers": "the Hugging Face Trainer",
        "accelerate": "Accelerate",
        "trl": "TRL",
        "peft": "peft",
        "llamafactory": "LLaMA-Factory",
        "axolotl": "axolotl",
        "swift": "ms-swift",
        "script": "train.py",
    }
)


@dataclass(frozen=True)
class Limit:
    """Values of one knob that some trainers cannot express.

    Attributes:
        trainers: which.
        is_beyond: whether a point has such a value. For a knob of the shape (micro batch, accumulation, share
            of checkpointed layers) it reads those alone, for all others only the rest.
        why: what they can do, and what to set in the space, without the point's own numbers; it follows the
            trainer's name.
        instead: what an exported file says in its place.
        senseless: whether there is nothing left to export.
    """

    trainers: tuple[str, ...]
    is_beyond: Callable[[Point], bool]
    why: str
    instead: str
    senseless: bool = False


# transformers switches all layers or none, and so does every trainer built on it.
_ALL_OR_NONE = ("transformers", "accelerate", "trl", "peft", "llamafactory", "axolotl", "swift")

# One entry per field of a point. Without limits: every trainer takes all values, most of them through the
# DeepSpeed configuration, which each reads as a file.
LIMITS: Final[Mapping[str, tuple[Limit, ...]]] = MappingProxyType(
    {
        "micro_batch_size": (),
        "gradient_accumulation_steps": (),
        "precision": (
            # get_train_args: without bf16 and fp16 the base has its checkpoint's precision, often bf16.
            Limit(
                trainers=("llamafactory",),
                is_beyond=lambda point: point.precision == "fp32" and point.lora_rank > 0,
                why="takes the frozen base in its checkpoint's precision: set precision: [bf16]",
                instead="neither bf16 nor fp16, so that the base has its checkpoint's precision",
            ),
            # init_adapter: peft's fp32 adapters stay, and a ZeRO-3 engine casts nothing.
            Limit(
                trainers=("llamafactory",),
                is_beyond=lambda point: (
                    point.precision != "fp32" and point.lora_rank > 0 and point.zero_stage == 3
                ),
                why="trains adapters in fp32 under ZeRO-3: set zero_stage: [0, 1, 2]",
                instead="the precision, in which all but the adapters is",
            ),
            # SFTTrainer makes bf16 of a quantised model's adapters; only a 16-bit engine casts them back.
            Limit(
                trainers=("trl",),
                is_beyond=lambda point: point.precision == "fp32" and point.quantization != "none",
                why="trains the adapters of a quantised base in 16 bits: set precision: [bf16]",
                instead="fp32, in which the adapters are bf16 all the same",
            ),
            # normalize_config: load_in_8bit without bf16 means float16.
            Limit(
                trainers=("axolotl",),
                is_beyond=lambda point: point.precision == "fp32" and point.quantization == "int8",
                why="computes in 16 bits over an int8 base: set precision: [bf16]",
                instead="fp32, of which axolotl makes fp16 for the base",
            ),
        ),
        "checkpoint_fraction": (
            Limit(
                trainers=_ALL_OR_NONE,
                is_beyond=lambda point: 0.0 < point.checkpoint_fraction < 1.0,
                why="checkpoints all layers or none: set checkpoint_fraction: [0, 1]",
                instead="every layer, which needs less memory and is slower",
            ),
        ),
        "zero_stage": (),
        "offload": (),
        "lora_rank": (
            Limit(
                trainers=("peft",),
                is_beyond=lambda point: point.lora_rank == 0,
                why="is for adapters, and full fine-tuning has none: set lora_rank above 0",
                instead="nothing",
                senseless=True,
            ),
        ),
        "quantization": (),
        "optimizer": (
            # Trainer.create_optimizer keeps the embeddings' state in 32 bits; DeepSpeed's flattened masters
            # escape it, and only fp32 at stage 0 has none.
            Limit(
                trainers=("transformers", "trl", "llamafactory", "axolotl", "swift"),
                is_beyond=lambda point: (
                    point.optimizer != "adamw"
                    and point.lora_rank == 0
                    and point.precision == "fp32"
                    and point.zero_stage == 0
                ),
                why="keeps the embeddings' optimizer state in 32 bits in fp32 at ZeRO stage 0: "
                "set zero_stage: [1, 2]",
                instead="the 8-bit optimizer with 32-bit state for the embeddings, which needs more memory",
            ),
        ),
        "attention": (),
        "liger_kernel": (),
        "zero_bucket_elements": (),
    }
)


@dataclass(frozen=True)
class Loss:
    """A value of a point that a trainer cannot express.

    Attributes:
        knob: the point's field.
        value: its value in the point.
        limit: the trainer's.
    """

    knob: str
    value: str
    limit: Limit

    def words(self, trainer: str) -> str:
        """One sentence without a full stop: what is lost, why, and what the file says instead."""
        why = self.limit.why.partition(":")[0]
        return (
            f"{self.knob} {self.value} is lost: {TITLES[trainer]} {why}; the file says {self.limit.instead}"
        )


def trainers() -> tuple[str, ...]:
    """The trainers that a winner can be exported for, or restricted to."""
    return tuple(TITLES)


def check_trainer(trainer: str | None) -> None:
    """Raises a UsageError with the closest name if there is no such trainer."""
    if trainer is not None and trainer not in TITLES:
        close = get_close_matches(trainer.lower(), trainers(), n=1)
        hint = f"did you mean {close[0]}?" if close else "one of: " + ", ".join(trainers())
        raise UsageError(f"there is no trainer {trainer!r}", hint)


def losses(trainer: str, point: Point) -> tuple[Loss, ...]:
    """What of a point the trainer cannot express, in the order of the point's fields."""
    values = point.model_dump(mode="json")
    return tuple(
        Loss(knob, str(values[knob]), limit)
        for knob, limits in LIMITS.items()
        for limit in limits
        if trainer in limit.trainers and limit.is_beyond(point)
    )


def why_beyond(trainer: str, point: Point, knobs: frozenset[str]) -> str | None:
    """Why a trainer cannot express a point, looking at limits of these knobs alone; None if it can."""
    for knob, limits in LIMITS.items():
        for limit in limits if knob in knobs else ():
            if trainer in limit.trainers and limit.is_beyond(point):
                return f"{trainer} {limit.why}"
    return None
