"""`train.py`: a stand-alone script that trains the winner with public libraries alone.

It is made from `train.py.tmpl` by leaving out what the winner does not use. It builds the model as our trial
does (`trials/model_build.py`, `adapters.py`, `checkpointing.py`, `engine.py`), in the same order: change them
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from string import Template

from autotune.export.escaping import shell_words
from autotune.export.exporter import Exporter
from autotune.export.template import render
from autotune.export.winner import Winner

SCRIPT = "train.py"


def script_facts(winner: Winner) -> dict[str, bool]:
    """What decides which blocks of the template the winner's script has."""
    point = winner.point
    quantized = point.quantization != "none"
    return {
        "bitsandbytes_optimizer": point.optimizer != "adamw",
        "checkpointed": point.checkpoint_fraction > 0,
        "deepspeed_optimizer": point.optimizer == "adamw",
        "liger": point.liger_kernel,
        "lora": point.lora_rank > 0,
        "paged": point.optimizer == "paged_adamw8bit",
        # transformers builds a quantised model whole; DeepSpeed partitions it afterwards.
        "partitioned_build": point.offload.endswith("+parameters") and not quantized,
        "quantized": quantized,
        "zero3": point.zero_stage == 3,
    }


def train_script(winner: Winner) -> str:
    """The text of `train.py`."""
    template = files("autotune.export").joinpath("train.py.tmpl").read_text(encoding="utf-8")
    facts = {**script_facts(winner), "several_gpus": winner.gpus > 1}
    return Template(render(template, facts)).substitute(start=start(winner))


def start(winner: Winner) -> str:
    """How it starts, in its folder; it sets its environment itself."""
    return start_command(winner.gpus)


def start_command(gpus: int, script: str = SCRIPT) -> str:
    """The shell command that trains as it was measured.

    Args:
        gpus: processes, one per GPU.
        script: the path of `train.py`.
    """
    launcher = ["python"] if gpus == 1 else ["torchrun", "--nproc-per-node", str(gpus)]
    return shell_words([*launcher, script])


def exported(winner: Winner) -> Mapping[str, str]:
    """Nothing beside the folder's own files, of which `train.py` is one."""
    return {}


EXPORTER = Exporter("script", SCRIPT, (SCRIPT,), exported, start)
