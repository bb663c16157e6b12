"""The flags, each in one place, with its environment variable `AUTOTUNE_<NAME>`.

Precedence is click's: a flag wins over the environment, and that over the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from autotune.cli.completing import complete_gpus, complete_models, complete_spaces, complete_studies
from autotune.cli.values import DURATION, FOLDER, GLOBAL_BATCH, NAMES, REUSE, SHARE, SIZE, TEXT
from autotune.errors import UsageError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

METHODS = ("auto", "full", "lora", "qlora", "any")
# Where the study that is named as an argument is kept while a command line is read.
NAMED = "autotune.study"
SAMPLERS = ("physics", "tpe", "gp", "random", "grid")
DEVICES = ("cuda", "cpu")
# The exporters' names, here so that --help does not import them; a test compares.
FORMATS = (
    *("deepspeed", "transformers", "accelerate", "trl", "peft", "llamafactory", "axolotl", "swift", "script"),
    "all",
)
DEFAULT_TRIALS = 40
DEFAULT_TIMEOUT_SECONDS = 8 * 3600.0
DEFAULT_TRIAL_TIMEOUT_SECONDS = 600.0


def option(flag: str, *names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A click option that may also be set by the environment variable `AUTOTUNE_<FLAG>`."""
    variable = "AUTOTUNE_" + flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *names, envvar=variable, **settings)


def stack(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator; `--help` shows them in the order given."""

    def apply(command: Decorated) -> Decorated:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return apply


debug_option = option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
json_option = option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
storage_option = option(
    "--storage",
    type=TEXT,
    metavar="URL",
    help="Where studies are kept, e.g. sqlite:///s.db.  [default: the user's data folder]",
)
study_option = option(
    "--study",
    type=TEXT,
    metavar="NAME",
    shell_complete=complete_studies,
    help="The study.  [default: the last one]",
)


def _keep_named(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """The argument: it stands in for `--study`, whichever of the two click looks at first."""
    if value is not None:
        ctx.meta[NAMED] = value
        ctx.params["study"] = _one_study(ctx, ctx.params.get("study"))


def _named_or(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return _one_study(ctx, value)


def _one_study(ctx: click.Context, asked: str | None) -> str | None:
    named: str | None = ctx.meta.get(NAMED)
    if named is None or asked in (None, named):
        return named or asked
    if ctx.get_parameter_source("study") is ParameterSource.COMMANDLINE:
        raise UsageError(f"two studies are named, {named} and {asked}", "name one")
    # That of the environment or of autotune.toml gives way.
    return named


study_options = stack(
    click.argument(
        "named", required=False, metavar="[STUDY]", expose_value=False, callback=_keep_named,
        shell_complete=complete_studies,
    ),
    option(
        "--study",
        type=TEXT,
        metavar="NAME",
        callback=_named_or,
        shell_complete=complete_studies,
        help="The same.  [default: the last one]",
    ),
)  # fmt: skip

search_options = stack(
    option(
        "--model",
        required=True,
        metavar="NAME",
        shell_complete=complete_models,
        help="A hub id, a folder, a config.json, or a shipped card ('autotune models').",
    ),
    option(
        "--gpu-budget",
        type=SIZE,
        help="Device memory per GPU, e.g. 24GB (2**30 bytes each).  [default: the whole card]",
    ),
    option(
        "--gpu-model",
        metavar="NAME",
        shell_complete=complete_gpus,
        help='The budget of a GPU by its name, e.g. "RTX 4090".',
    ),
    option(
        "--method",
        type=click.Choice(METHODS, case_sensitive=False),
        default="auto",
        show_default=True,
        help="auto: LoRA, and where no LoRA point fits, QLoRA.",
    ),
    option(
        "--seq-len",
        type=click.IntRange(min=1),
        help="Tokens per sequence.  [default: 1024, or the model's maximum if that is less]",
    ),
    option(
        "--global-batch",
        type=GLOBAL_BATCH,
        default="32",
        show_default=True,
        help="Sequences per optimizer step; 'any' searches it too.",
    ),
    option("--exact-global-batch", is_flag=True, help="No point may be off the global batch at all."),
    option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs per trial."),
    option(
        "--space",
        metavar="NAME|FILE",
        shell_complete=complete_spaces,
        help="A shipped space or a YAML file.  [default: follows from --method]",
    ),
    option("--host-budget", type=SIZE, help="Host memory for a trial.  [default: what the machine has free]"),
    option(
        "--min-rank",
        type=click.IntRange(min=1),
        default=16,
        show_default=True,
        help="The lowest LoRA rank allowed.",
    ),
    option(
        "--lora-targets", type=NAMES, help="Modules that get LoRA.  [default: all linear layers but the head]"
    ),
    option(
        "--trainer",
        type=click.Choice(FORMATS[:-1], case_sensitive=False),
        metavar="NAME",
        help="Search only what this trainer can express, e.g. trl.",
    ),
)

run_options = stack(
    option(
        "--trials",
        type=click.IntRange(min=1),
        default=DEFAULT_TRIALS,
        show_default=True,
        help="The study's total.",
    ),
    option(
        "--timeout",
        type=DURATION,
        default="8h",
        show_default=True,
        help="For the search of this call; confirming the winner comes after it.",
    ),
    option("--trial-timeout", type=DURATION, default="10m", show_default=True, help="For one trial."),
    option(
        "--device",
        type=click.Choice(DEVICES, case_sensitive=False),
        help="[default: cuda if there is a GPU, else cpu]",
    ),
    option(
        "--sampler",
        type=click.Choice(SAMPLERS, case_sensitive=False),
        default="physics",
        show_default=True,
        help="What proposes points.",
    ),
    option(
        "--until",
        type=SHARE,
        default="1%",
        show_default=True,
        help="End when less than this is expected to be left to gain; 0: only at --trials or --timeout.",
    ),
    option(
        "--study",
        type=TEXT,
        metavar="NAME",
        shell_complete=complete_studies,
        help="The study's name.  [default: found by its inputs]",
    ),
    storage_option,
    option(
        "--reuse",
        type=REUSE,
        default="auto",
        show_default=True,
        help="Learn from similar studies: auto, own (none of those that are shipped), off, or names.",
    ),
    option(
        "--export-dir", type=TEXT, metavar="DIR", help="The winner's folder.  [default: autotune-out/STUDY]"
    ),
    option(
        "--export",
        type=click.Choice(FORMATS, case_sensitive=False),
        multiple=True,
        help="Also write the files of a trainer; can be given again.  [default: the --trainer, if any]",
    ),
    option("--load-weights", is_flag=True, help="Measure with the model's real weights."),
    option("--nvme-path", type=FOLDER, metavar="DIR", help="A folder on NVMe: allows offload to it."),
    option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Of the sampler and the tokens.",
    ),
)

log_file_option = option(
    "--log-file", type=TEXT, metavar="FILE", help="Append the progress, with times, to this file."
)
quiet_option = option("--quiet", is_flag=True, help="No progress, only the result and errors.")
progress_options = stack(
    quiet_option,
    option("--verbose", is_flag=True, help="Also every phase and note of the trials."),
    log_file_option,
)
