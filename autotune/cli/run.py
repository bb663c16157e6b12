"""`autotune run`: from flags to a request, and from the result to text or JSON."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from autotune import __version__
from autotune.cli.options import (
    debug_option,
    json_option,
    progress_options,
    run_options,
    search_options,
)
from autotune.cli.output import print_json, print_text
from autotune.cli.telling import opened_log
from autotune.errors import NothingFits, UsageError

if TYPE_CHECKING:
    from autotune.tuning.findings import RunResult
    from autotune.tuning.request import Request


@click.command("run")
@search_options
@run_options
@json_option
@progress_options
@debug_option
@click.pass_context
def run(
    ctx: click.Context, /, as_json: bool, quiet: bool, verbose: bool, log_file: str | None, **flags: Any
) -> int:
    """Search, measure, confirm the winner and export it. The same command again goes on where it stopped.

    On a GPU the memory of every configuration is predicted first: what cannot fit is never launched. The
    budget is enforced on each trial all the same.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", "give one of them")
    began = time.monotonic()
    from autotune.display.screen import open_screen

    with opened_log(log_file) as log:
        waited = time.monotonic() - began
        screen, stream = open_screen(sys.stderr, quiet=quiet, verbose=verbose, log=log, waited_seconds=waited)
        screen.say(first_line(flags))
        from autotune.tuning.interrupts import Interrupts
        from autotune.tuning.tune import tune

        try:
            with Interrupts(on_hangup=stream.close) as interrupts:
                result = tune(_request(ctx, flags), screen, interrupts)
        finally:
            screen.close()
    return _answer(result, as_json=as_json)


def first_line(flags: dict[str, Any]) -> str:
    """What is about to be tuned, at once: `autotune 0.1.0: tiny-llama, budget 1 GiB, cpu`."""
    from autotune.sizes import format_size

    words = [flags["model"]]
    if flags["gpu_budget"] is not None:
        words.append(f"budget {format_size(flags['gpu_budget'])}")
    elif flags["gpu_model"] is not None:
        words.append(f"budget of a {flags['gpu_model']}")
    if flags["device"] is not None:
        words.append(flags["device"])
    return f"autotune {__version__}: {', '.join(words)}"


def _request(ctx: click.Context, flags: dict[str, Any]) -> Request:
    from autotune.tuning.request import Request

    return Request(
        model=flags["model"],
        gpu_budget_bytes=flags["gpu_budget"],
        gpu_model=flags["gpu_model"],
        method=flags["method"],
        seq_len=flags["seq_len"],
        global_batch=None if flags["global_batch"] == "any" else flags["global_batch"],
        exact_global_batch=flags["exact_global_batch"],
        gpus=flags["gpus"],
        space=flags["space"],
        host_budget_bytes=flags["host_budget"],
        min_rank=flags["min_rank"],
        lora_targets=flags["lora_targets"],
        trainer=flags["trainer"],
        trials=flags["trials"],
        timeout_seconds=flags["timeout"],
        trial_timeout_seconds=flags["trial_timeout"],
        device=flags["device"],
        sampler=flags["sampler"],
        until=flags["until"],
        study=flags["study"],
        storage=flags["storage"],
        export_dir=Path(flags["export_dir"]) if flags["export_dir"] else None,
        reuse=flags["reuse"],
        exports=flags["export"] or ((flags["trainer"],) if flags["trainer"] else ()),
        load_weights=flags["load_weights"],
        nvme_path=flags["nvme_path"],
        seed=flags["seed"],
        command=command_line(ctx, flags["storage"]),
    )


def command_line(ctx: click.Context, storage: str | None) -> str:
    """The command as typed, with what came from the environment or a configuration file as flags.

    A storage's password is left out.
    """
    words = ["autotune", *(ctx.obj or ["run"])]
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        flag = parameter.opts[0]
        if flag == "--config" or source not in (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP):
            continue
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words += [flag] if ctx.params.get(parameter.name or "") else []
        elif source is ParameterSource.ENVIRONMENT:
            value = os.environ[str(parameter.envvar)]
            for one in value.split() if parameter.multiple else [value]:
                words += [flag, one]
        else:
            given = ctx.lookup_default(str(parameter.name))
            for value in given if isinstance(given, tuple) else (given,):
                words += [flag, str(value)]
    if storage:
        from autotune.study import redact

        words = [word.replace(storage, redact(storage)) for word in words]
    return shlex.join(words)


def _answer(result: RunResult, *, as_json: bool) -> int:
    from autotune.display.results import run_text, shortfall_words

    if as_json:
        print_json(result.as_json())
    elif result.findings.chosen is not None:
        print_text(run_text(result))
    if result.findings.chosen is None and not result.interrupted:
        raise NothingFits(*shortfall_words(result))
    if result.interrupted:
        click.echo("interrupted", err=True)
    return int(result.exit_code)
