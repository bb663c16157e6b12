"""How each trainer is started on an exported folder: its environment, what its user fills in, two steps."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.export import EXPORTERS, Winner
from autotune.export.yaml_text import FILL_IN

TIMEOUT_SECONDS = 900
SPY = Path(__file__).resolve().parent / "spy"


@dataclass(frozen=True)
class Start:
    """What a user does with one trainer's export.

    Attributes:
        environment: the folder of its virtual environment, by name.
        more: arguments after the exported command: where the data is, and two steps.
        fill_in: which value each FILL_IN gets, by its key; `{model}`, `{text}` and `{chat}` are folders.
        replace: lines of the file that the user writes otherwise.
    """

    environment: str
    more: str = ""
    fill_in: Mapping[str, str] = field(default_factory=dict)
    replace: Mapping[str, str] = field(default_factory=dict)


OWN = "--model {model} --data {text}/train.jsonl --steps 2"
STARTS: dict[str, Start] = {
    "deepspeed": Start("huggingface", "--model {model} --data {text}/train.jsonl --steps 2"),
    "script": Start("huggingface", OWN),
    "transformers": Start("huggingface", OWN),
    "accelerate": Start("huggingface", OWN),
    "peft": Start("huggingface", OWN),
    "trl": Start(
        "huggingface",
        "--max_steps 2",
        {"model_name_or_path": "{model}", "dataset_name": "{text}"},
    ),
    "llamafactory": Start(
        "llamafactory",
        "max_steps=2",
        {"model_name_or_path": "{model}", "dataset": "documents"},
        {"dataset_dir: data": "dataset_dir: {text}"},
    ),
    "axolotl": Start(
        "axolotl",
        "",
        {"base_model": "{model}", "path": "{text}"},
        {"num_epochs: 1": "max_steps: 2"},
    ),
    "swift": Start(
        "swift",
        "--max_steps 2 --model_type llama --template dummy",
        {"model": "{model}", "-": "{chat}/train.jsonl"},
    ),
}


@dataclass(frozen=True)
class Ended:
    """How a trainer ended.

    Attributes:
        code: its exit code; None: it was ended for its time.
        output: what it printed, its end.
        report: the spy's file, if there is one.
    """

    code: int | None
    output: str
    report: Path | None


def fill_in(folder: Path, start: Start, names: tuple[str, ...], places: Mapping[str, str]) -> None:
    """Write the user's values into the exported files."""
    for name in names:
        path = folder / name
        if path.suffix != ".yaml":
            continue
        lines = []
        for line in path.read_text(encoding="utf-8").splitlines():
            key = line.strip().split()[0].rstrip(":") if line.strip() else ""
            if key == "-" and len(line.split()) > 2:
                key = line.split()[1].rstrip(":")
            if not line.startswith("#") and FILL_IN in line:
                line = line.replace(FILL_IN, start.fill_in[key].format(**places))
            for old, new in start.replace.items():
                line = new.format(**places) if line == old else line
            lines.append(line)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(trainer: str, winner: Winner, folder: Path, environments: Path, places: Mapping[str, str]) -> Ended:
    """Start a trainer on an exported folder as its README says, with the spy."""
    start, exporter = STARTS[trainer], EXPORTERS[trainer]
    fill_in(folder, start, exporter.names, places)
    report = folder / f"spy-{trainer}.json"
    command = f"{exporter.start(winner)} {start.more.format(**places)}"
    assignments, words = [], shlex.split(command)
    while "=" in words[0]:
        assignments.append(words.pop(0).split("=", 1))
    binaries = environments / start.environment / "bin"
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
        **dict(assignments),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(SPY),
        "AUTOTUNE_SPY": str(report),
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(environments / "huggingface-home"),
        # More would wait for each other on a machine that is busy.
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, code = process.communicate()[0], None
    (folder / f"log-{trainer}.txt").write_text(f"{command}\n\n{output}", encoding="utf-8")
    return Ended(code, output[-4000:], report if report.exists() else None)
