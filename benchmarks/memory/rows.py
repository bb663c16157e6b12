"""The measured configurations this benchmark compares with.

`h200_memory.jsonl` (46 rows) and `h200_memory_models.json` were measured once on an NVIDIA H200, one
process, an NCCL world of one: torch 2.11.0+cu130, transformers 5.17.0, deepspeed 0.19.8, peft 0.21.2,
bitsandbytes 0.50.2. Each row holds the configuration and `measured`. They were loaded in another way than a
trial loads: a model was built whole on the GPU and quantised afterwards, `torch.cuda.empty_cache()` was
called after quantising and after the engine's start, and the bucket is DeepSpeed's default 5e8 elements.

`h200_own.jsonl` was measured by trials of this project on the same kind of machine (peft 0.21.0): by
`benchmarks.memory.measure`, by twelve trials of an `autotune run`, and by eighteen of the shared
configurations under our own loader. Six of the latter were recorded before the driver's own 615 MiB counted
as the process'; it was added to their device figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.wire import ModelSpec, Point

HERE = Path(__file__).parent
SHARED_ROWS = HERE / "h200_memory.jsonl"
SHARED_MODELS = HERE / "h200_memory_models.json"


@dataclass(frozen=True)
class Row:
    """One measured configuration.

    Attributes:
        model: what was trained.
        seq_len: tokens per sequence.
        point: the configuration.
        expandable_segments: how the allocator was set.
        measured: figures in bytes, by name.
        own_loader: whether a trial of ours measured it, with our loader.
        lora_targets: adapted modules; None for all linear layers except the head.
        budget_bytes: the limit it ran under; None: no limit.
        outcome: how the trial ended.
    """

    model: ModelSpec
    seq_len: int
    point: Point
    expandable_segments: bool
    measured: dict[str, Any]
    own_loader: bool
    lora_targets: tuple[str, ...] | None = None
    budget_bytes: int | None = None
    outcome: str = "ok"

    @property
    def label(self) -> str:
        """A line that names the configuration."""
        point = self.point
        parts = [
            self.model.name,
            point.method,
            f"s{self.seq_len}",
            f"b{point.micro_batch_size}x{point.gradient_accumulation_steps}",
            point.precision,
            f"z{point.zero_stage}",
        ]
        parts += [point.offload] if point.offload != "none" else []
        parts += [f"ck{point.checkpoint_fraction:g}"] if point.checkpoint_fraction else []
        parts += [f"r{point.lora_rank}"] if point.lora_rank else []
        parts += [point.quantization] if point.quantization != "none" else []
        parts += [point.optimizer] if point.optimizer != "adamw" else []
        parts += [point.attention] if point.attention != "sdpa" else []
        parts += ["liger"] if point.liger_kernel else []
        return " ".join(parts)


def shared_rows() -> Iterator[Row]:
    """The 46 shared rows."""
    models = json.loads(SHARED_MODELS.read_text())
    for line in SHARED_ROWS.read_text().splitlines():
        values = json.loads(line)
        config = dict(models[values["model"]])
        config["model_type"] = config.pop("arch")
        yield Row(
            model=ModelSpec(name=values["model"], config=config),
            seq_len=values["seq_len"],
            point=Point(**{name: values[name] for name in Point.model_fields if name in values}),
            expandable_segments=values["expandable_segments"],
            measured=values["measured"],
            own_loader=False,
        )


def own_rows(path: Path) -> Iterator[Row]:
    """Rows that `benchmarks.memory.measure` appended to a file: those that ended well, or out of memory."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        values = json.loads(line)
        if values["result"]["outcome"] not in ("ok", "oom"):
            continue
        yield Row(
            model=ModelSpec.model_validate(values["model"]),
            seq_len=values["seq_len"],
            point=Point.model_validate(values["point"]),
            expandable_segments=True,
            measured=values["result"],
            own_loader=True,
            budget_bytes=values["budget_bytes"],
            outcome=values["result"]["outcome"],
        )
