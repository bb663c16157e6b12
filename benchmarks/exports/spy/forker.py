"""Starts one trainer many times in one environment, for a fraction of what its imports cost each time.

    python forker.py JOBS.json

Run by the environment's own Python. Each job is a fork that runs what the trainer's launcher would have run:
the same entry point, the same arguments, the environment that the launcher's own code makes of its files.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

PRELOAD = {
    "huggingface": (
        "torch",
        "deepspeed",
        "bitsandbytes",
        "peft",
        "transformers.trainer",
        "trl.trainer.sft_trainer",
    ),
    "llamafactory": ("torch", "deepspeed", "bitsandbytes", "llamafactory.train.tuner"),
    "axolotl": ("torch", "deepspeed", "bitsandbytes", "axolotl.cli.config", "axolotl.train"),
    "swift": ("torch", "deepspeed", "bitsandbytes", "swift.pipelines"),
}
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
}


def main() -> None:
    """Preload, then fork for each job in turn."""
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name in PRELOAD[jobs[0]["environment"]]:
        importlib.import_module(name)
    for job in jobs:
        child = os.fork()
        if child == 0:
            run(job)
        print(
            json.dumps({"winner": job["winner"], "trainer": job["trainer"], "code": wait(child, job)}),
            flush=True,
        )


def wait(child: int, job: dict[str, Any]) -> int | None:
    """The child's exit code; None where it was ended for its time."""
    end = time.monotonic() + job["timeout_seconds"]
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.2)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def free_port() -> str:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run(job: dict[str, Any]) -> None:
    """In the child: never returns."""
    os.setsid()
    with open(job["log"], "a", encoding="utf-8", buffering=1) as log:  # noqa: PTH123
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = 1
    try:
        os.chdir(job["folder"])
        os.environ.update(ALONE, MASTER_PORT=free_port(), AUTOTUNE_SPY=job["report"])
        os.environ.update(job["variables"])
        sys.path.insert(0, job["folder"])
        enter(job["trainer"], job["words"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def enter(trainer: str, words: list[str]) -> None:
    """Run the words of a command, from the entry point on, as the launcher would."""
    if trainer == "accelerate":
        from accelerate.commands.launch import _validate_launch_command, launch_command_parser
        from accelerate.utils.launch import prepare_deepspeed_cmd_env

        arguments, defaults, _ = _validate_launch_command(launch_command_parser().parse_args(words))
        arguments.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        os.environ.update(prepare_deepspeed_cmd_env(arguments)[1])
        words = [arguments.training_script, *arguments.training_script_args]
    if trainer == "swift":
        from swift.cli.main import parse_yaml_args

        given = words[2:]
        parse_yaml_args(given)
        words = [*words[:2], *given]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
