"""For a loop of the user's own around DeepSpeed: `ds_config.json`, which every export folder has."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.export.exporter import Exporter, environment
from autotune.export.winner import Winner


def start(winner: Winner) -> str:
    """The loop that is exported; the JSON alone says nothing of LoRA, quantization and checkpointing."""
    return f"{environment(winner)} deepspeed --num_gpus {winner.gpus} train.py"


def exported(winner: Winner) -> Mapping[str, str]:
    """Nothing beside the folder's own files."""
    return {}


EXPORTER = Exporter("deepspeed", "ds_config.json", ("ds_config.json",), exported, start)
