"""For peft: `adapter_config.json`, and a script that trains what it describes.

An adapter's configuration says nothing of the training, so the Trainer's arguments come with it.
Checked with peft 0.21.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from autotune.export.exporter import Exporter, torchrun
from autotune.export.lora import lora_settings
from autotune.export.transformers import arguments_text, script_text
from autotune.export.winner import Winner

CONFIG = "adapter_config.json"
SCRIPT = "train_peft.py"
# A file of its own: that of the Trainer says how another script starts.
ARGUMENTS = "peft.yaml"


def start(winner: Winner) -> str:
    """How the script starts."""
    return torchrun(winner, SCRIPT)


def exported(winner: Winner) -> Mapping[str, str]:
    """The files; of a winner with adapters only."""
    command = start(winner)
    return {
        CONFIG: json.dumps(lora_settings(winner), indent=2) + "\n",
        SCRIPT: script_text(winner, "peft", command, SCRIPT, ARGUMENTS),
        ARGUMENTS: arguments_text(winner, "peft", command),
    }


EXPORTER = Exporter("peft", CONFIG, (CONFIG, SCRIPT, ARGUMENTS), exported, start)
