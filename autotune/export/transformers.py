"""For the Hugging Face Trainer: TrainingArguments as YAML, and a short script that uses them.

Checked with transformers 5.17.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from string import Template

from autotune.export.arguments import (
    batch_arguments,
    checkpointing_arguments,
    device_arguments,
    optimizer_arguments,
    precision_arguments,
    schedule_arguments,
)
from autotune.export.exporter import Exporter, header, script_header, torchrun
from autotune.export.script import script_facts
from autotune.export.template import render
from autotune.export.winner import Winner
from autotune.export.yaml_text import yaml_text

ARGUMENTS = "transformers.yaml"
SCRIPT = "train_transformers.py"
DS_CONFIG = "ds_config.auto.json"


def start(winner: Winner) -> str:
    """How the script starts."""
    return torchrun(winner, SCRIPT)


def arguments_text(winner: Winner, trainer: str, command: str) -> str:
    """TrainingArguments and nothing else, for `HfArgumentParser.parse_yaml_file`."""
    return yaml_text(
        (
            *header(trainer, winner, command),
            "Attention, LoRA, quantization and the sequence length are the model's: the script sets them.",
        ),
        (
            (
                "What was measured.",
                {
                    "deepspeed": DS_CONFIG,
                    **batch_arguments(winner),
                    **precision_arguments(winner),
                    **optimizer_arguments(winner),
                    **checkpointing_arguments(winner),
                    "use_liger_kernel": winner.point.liger_kernel,
                    **device_arguments(winner),
                },
            ),
            ("Yours to choose: memory and speed do not depend on it.", schedule_arguments()),
        ),
    )


def script_text(winner: Winner, trainer: str, command: str, script: str, arguments: str) -> str:
    """The script, which reads the file of arguments; with `adapter_config.json` where the trainer is peft."""
    template = files("autotune.export").joinpath("train_transformers.py.tmpl").read_text(encoding="utf-8")
    facts = {**script_facts(winner), "adapter_folder": trainer == "peft"}
    top = script_header(trainer, winner, command)
    return Template(render(template, facts)).substitute(
        header=top, start=command, script=script, arguments=arguments
    )


def exported(winner: Winner) -> Mapping[str, str]:
    """The files."""
    command = start(winner)
    return {
        ARGUMENTS: arguments_text(winner, "transformers", command),
        SCRIPT: script_text(winner, "transformers", command, SCRIPT, ARGUMENTS),
    }


EXPORTER = Exporter("transformers", ARGUMENTS, (ARGUMENTS, SCRIPT), exported, start)
