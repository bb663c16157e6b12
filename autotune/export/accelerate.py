"""For Accelerate: the launcher's YAML, the DeepSpeed configuration it names, and a short training loop.

Checked with accelerate 1.15.0. It refuses ZeRO keys of its own beside `deepspeed_config_file`, and fills in
none of the optimizer's "auto" but the learning rate and the weight decay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

from autotune.export.ds_config import with_zero_block
from autotune.export.exporter import Exporter, environment, header, script_header
from autotune.export.script import script_facts
from autotune.export.template import render
from autotune.export.winner import Winner
from autotune.export.yaml_text import yaml_text

CONFIG = "accelerate.yaml"
DS_CONFIG = "ds_config.accelerate.json"
SCRIPT = "train_accelerate.py"


def start(winner: Winner) -> str:
    """How the script starts."""
    return f"{environment(winner)} accelerate launch --config_file {CONFIG} {SCRIPT}"


def launch_config(winner: Winner) -> dict[str, Any]:
    """What `accelerate launch --config_file` reads."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {
            "deepspeed_config_file": DS_CONFIG,
            "deepspeed_multinode_launcher": "standard",
            # Off, where what was measured was built whole and partitioned afterwards.
            "zero3_init_flag": script_facts(winner)["partitioned_build"],
        },
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": 1,
        "num_processes": winner.gpus,
        "use_cpu": winner.device == "cpu",
    }


def deepspeed_text(winner: Winner) -> str:
    """What ran, with the one number that depends on how many processes are launched left open."""
    config = {**with_zero_block(winner.ds_config), "train_batch_size": "auto"}
    return json.dumps(config, indent=2) + "\n"


def exported(winner: Winner) -> Mapping[str, str]:
    """The files."""
    command = start(winner)
    top = header("accelerate", winner, command)
    template = files("autotune.export").joinpath("train_accelerate.py.tmpl").read_text(encoding="utf-8")
    text = Template(render(template, script_facts(winner)))
    script = text.substitute(
        header=script_header("accelerate", winner, command), start=command, script=SCRIPT
    )
    remark = (
        f"The numbers are in {DS_CONFIG}; LoRA, quantization, attention, checkpointing and the sequence "
        f"length are the script's."
    )
    return {
        CONFIG: yaml_text((*top, remark), (("For accelerate launch --config_file.", launch_config(winner)),)),
        DS_CONFIG: deepspeed_text(winner),
        SCRIPT: script,
    }


EXPORTER = Exporter("accelerate", CONFIG, (CONFIG, DS_CONFIG, SCRIPT), exported, start)
