"""How each trainer is started on an exported folder: its environment, what its user fills in, two steps."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        entry: what the launcher runs in its processes; None: the command is started whole each time.
    """

    environment: str
    more: str = ""
    fill_in: Mapping[str, str] = field(default_factory=dict)
    replace: Mapping[str, str] = field(default_factory=dict)
    entry: tuple[str, ...] | None = None


OWN = "--model {model} --data {text}/train.jsonl --steps 2"
STARTS: dict[str, Start] = {
    "deepspeed": Start("huggingface", OWN, entry=("train.py",)),
    "script": Start("huggingface", OWN, entry=("train.py",)),
    "transformers": Start("huggingface", OWN, entry=("train_transformers.py",)),
    "accelerate": Start(
        "huggingface", OWN, entry=("--config_file", "accelerate.yaml", "train_accelerate.py")
    ),
    "peft": Start("huggingface", OWN, entry=("train_peft.py",)),
    "trl": Start(
        "huggingface",
        "--max_steps 2",
        {"model_name_or_path": "{model}", "dataset_name": "{text}"},
        entry=("-m", "trl.scripts.sft", "--config", "trl.yaml"),
    ),
    "llamafactory": Start(
        "llamafactory",
        "max_steps=2",
        {"model_name_or_path": "{model}", "dataset": "documents"},
        {"dataset_dir: data": "dataset_dir: {text}"},
        entry=("-m", "llamafactory.launcher", "llamafactory.yaml"),
    ),
    "axolotl": Start(
        "axolotl",
        "",
        {"base_model": "{model}", "path": "{text}"},
        {"num_epochs: 1": "max_steps: 2"},
        entry=("-m", "axolotl.cli.train", "axolotl.yaml"),
    ),
    "swift": Start(
        "swift",
        "--max_steps 2 --model_type llama --template dummy",
        {"model": "{model}", "-": "{chat}/train.jsonl"},
        entry=("-m", "swift.cli.sft", "swift.yaml"),
    ),
}


@dataclass(frozen=True)
class Job:
    """One winner in one trainer.

    Attributes:
        winner: its name.
        trainer: the exporter's name.
        folder: the exported folder, with the user's part filled in.
        command: the shell command that starts it.
        code: the exit code; None: it was ended for its time, or has not run.
    """

    winner: str
    trainer: str
    folder: Path
    command: str
    code: int | None = None

    @property
    def report(self) -> Path:
        """The spy's file."""
        return self.folder / f"spy-{self.trainer}.json"

    @property
    def log(self) -> Path:
        """What was printed."""
        return self.folder / f"log-{self.trainer}.txt"


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


def job(name: str, trainer: str, winner: Winner, folder: Path, places: Mapping[str, str]) -> Job:
    """What is to be run, with the user's part filled in."""
    start, exporter = STARTS[trainer], EXPORTERS[trainer]
    fill_in(folder, start, exporter.names, places)
    return Job(name, trainer, folder, f"{exporter.start(winner)} {start.more.format(**places)}".strip())


def run_whole(one: Job, environments: Path) -> Job:
    """Start the command as its README says, with the spy."""
    variables, words = _split(one.command)
    with one.log.open("w", encoding="utf-8") as log:
        log.write(f"{one.command}\n\n")
        log.flush()
        process = subprocess.Popen(
            words,
            cwd=one.folder,
            env={**_surroundings(one.trainer, environments), **variables, "AUTOTUNE_SPY": str(one.report)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return replace(one, code=process.wait(timeout=TIMEOUT_SECONDS))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return one


def run_forked(jobs: Sequence[Job], environments: Path, places: Mapping[str, str]) -> Iterator[Job]:
    """Run jobs of one environment as forks of one process that has loaded the trainer.

    What a launcher does before is left out; each trainer's first winner has shown that it works.
    """
    if not jobs:
        return
    environment = STARTS[jobs[0].trainer].environment
    described = []
    for one in jobs:
        start = STARTS[one.trainer]
        assert start.entry is not None and start.environment == environment
        one.log.write_text(f"{one.command}  (forked)\n\n", encoding="utf-8")
        described.append(
            {
                "winner": one.winner,
                "trainer": one.trainer,
                "environment": environment,
                "folder": str(one.folder),
                "words": [*start.entry, *shlex.split(start.more.format(**places))],
                "variables": _split(one.command)[0],
                "report": str(one.report),
                "log": str(one.log),
                "timeout_seconds": TIMEOUT_SECONDS,
            }
        )
    path = jobs[0].folder.parent / f"jobs-{environment}.json"
    path.write_text(json.dumps(described), encoding="utf-8")
    python = environments / environment / "bin" / "python"
    surroundings = {**_surroundings(jobs[0].trainer, environments), "AUTOTUNE_SPY": "/dev/null"}
    with (path.with_suffix(".log")).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(python), str(SPY / "forker.py"), str(path)],
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        left = iter(jobs)
        for line in process.stdout:
            if line.startswith('{"winner"'):
                yield replace(next(left), code=json.loads(line)["code"])
        process.wait()
    yield from left


def _split(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a shell command sets, and its words."""
    variables, words = {}, shlex.split(command)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, words


def _surroundings(trainer: str, environments: Path) -> dict[str, str]:
    """The environment of a trainer's process: on the CPU, offline."""
    root = environments / STARTS[trainer].environment
    return {
        **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(SPY),
        # DeepSpeed's operators are compiled anew where another environment's lie.
        "TORCH_EXTENSIONS_DIR": str(root / "extensions"),
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        # None of them reports to its makers.
        "DO_NOT_TRACK": "1",
        "AXOLOTL_DO_NOT_TRACK": "1",
        "WANDB_MODE": "disabled",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(environments / "huggingface-home"),
        # More would wait for each other on a machine that is busy.
        "OMP_NUM_THREADS": "1",
    }
