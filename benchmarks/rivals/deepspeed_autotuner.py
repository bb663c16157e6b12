"""DeepSpeed's own autotuner as a contender: launched as its users launch it, on one node without ssh.

Checked with deepspeed 0.19.8.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

from benchmarks.rivals.autotuner_results import PROFILE, best_experiment, read_experiments
from benchmarks.rivals.contender import Found, Job, Status
from benchmarks.rivals.processes import Ended, run_limited
from benchmarks.rivals.rival_job import write_job
from benchmarks.rivals.scripts.deepspeed_launcher import CARD_BYTES
from trials.ds_config import deepspeed_config
from trials.wire import Point

SCRIPTS = Path(__file__).parent / "scripts"
RESULTS = "autotuning_results"


def run_deepspeed_autotuner(job: Job) -> Found:
    """`deepspeed --autotuning tune` in fast mode over all ZeRO stages."""
    if importlib.util.find_spec("tabulate") is None:
        return Found(status="failed", wall_seconds=0.0, note="needs tabulate: deepspeed[autotuning]")
    config = job.folder / "ds.json"
    config.write_text(json.dumps(tuner_config(job)))
    command = [sys.executable, str(SCRIPTS / "deepspeed_launcher.py"), "--autotuning", "tune"]
    command += ["--num_gpus", "1", "--num_nodes", "1", "--master_port", str(_free_port())]
    command += [str(SCRIPTS / "deepspeed_training.py")]
    command += ["--job", str(write_job(job)), "--deepspeed_config", str(config)]
    environment = job.environment(os.environ)
    environment[CARD_BYTES] = str(job.setting.budget_bytes)
    programs = _deepspeed_command(job.folder / "bin")
    environment["PATH"] = os.pathsep.join([str(programs), environment.get("PATH", os.defpath)])
    ended = run_limited(command, folder=job.folder, environment=environment, limit_seconds=job.limit_seconds)
    return found_by_tuner(job, ended)


def tuner_config(job: Job) -> dict[str, Any]:
    """What a user would write: the same training as everybody's, and the tuner's own block.

    Its micro batch and accumulation are the tuner's; its largest batch is the global batch, so that it
    divides that among micro batches. What it has no option for (offload, checkpointing) is left off.
    """
    config = deepspeed_config(
        Point(), trainable_parameters=1, largest_parameter=1, torch_adam=job.machine.torch_adam
    )
    for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
        del config[key]
    config["zero_optimization"] = {"stage": "all"}
    config["autotuning"] = {
        "enabled": True,
        "fast": True,
        "metric": "throughput",
        "results_dir": str(job.folder / RESULTS),
        "exps_dir": str(job.folder / "autotuning_exps"),
        "max_train_batch_size": job.setting.global_batch,
    }
    return config


def found_by_tuner(job: Job, ended: Ended) -> Found:
    """The result from the folder the tuner leaves, finished or not."""
    results = job.folder / RESULTS
    experiments = read_experiments(results)
    best = best_experiment(experiments, results / "ds_config_optimal.json")
    status: Status = "cut" if ended.cut else ("finished" if best is not None else "failed")
    notes = []
    if not ended.cut and ended.returncode != 0:
        notes.append(f"exit code {ended.returncode}: {ended.last_words()}")
    if best is None:
        reasons = [f"{one.name}: {one.status}, {one.reason}" for one in experiments if one.reason]
        if [(one.name, one.status) for one in experiments] == [(PROFILE, "ok")]:
            notes.append("it began no experiment after profiling the model" + _refusal(ended))
        else:
            notes.append(reasons[-1] if reasons else f"no experiment ended: {ended.last_words()}")
    elif best.sequences_per_step != job.setting.global_batch:
        notes.append(f"its own figure is at {best.sequences_per_step} sequences a step")
    point = None
    if best is not None:
        point = job.setting.point(
            job.case,
            best.micro_batch_size,
            zero_stage=best.zero_stage,
            zero_bucket_elements=best.zero_bucket_elements,
        )
    return Found(
        status=status,
        wall_seconds=ended.wall_seconds,
        point=point,
        own_tokens_per_second=(best.samples_per_second or 0.0) * job.setting.seq_len if best else None,
        tried=sum(experiment.name != PROFILE for experiment in experiments),
        ooms=sum(experiment.status == "oom" for experiment in experiments),
        note="; ".join(notes).replace(str(job.folder), "FOLDER"),
        details={"experiments": [experiment.model_dump(mode="json") for experiment in experiments]},
    )


def _refusal(ended: Ended) -> str:
    """Why it tries nothing, where it says so."""
    found = re.search(
        r"The model has (\d+) parameters and requires at least (.+?) memory .* in system is (.+?)\. No ",
        ended.stdout.read_text(errors="replace"),
    )
    if found is None:
        return ""
    parameters, needed, there = found.groups()
    return f": for {int(parameters):,} parameters, trained or not, it reckons with {needed} of {there}B"


def _free_port() -> int:
    """A port that nobody listens on; each experiment takes the one after the last experiment's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return port


def _deepspeed_command(folder: Path) -> Path:
    """A folder with the command `deepspeed`, which the tuner starts its experiments by.

    A wheel that was unpacked rather than installed brings no such command.
    """
    folder.mkdir()
    path = folder / "deepspeed"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m deepspeed.launcher.runner "$@"\n')
    path.chmod(0o755)
    return folder
