"""The entry point: the group of commands, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from autotune import __version__
from autotune.cli.failure import debug_asked, report
from autotune.cli.lazy import LazyCommand, LazyGroup
from autotune.cli.output import drop_stdout
from autotune.cli.streams import check_utf8, occupy_standard_streams
from autotune.errors import ExitCode

COMMANDS = {
    "run": LazyCommand(
        "autotune.cli.run", "run", "Search, measure, confirm the winner, export it; again to resume."
    ),
    "plan": LazyCommand(
        "autotune.cli.plan", "plan", "Without a GPU: what fits, ranked, and why the rest does not."
    ),
    "estimate": LazyCommand(
        "autotune.cli.estimate", "estimate", "The memory of one configuration, piece by piece."
    ),
    "explain": LazyCommand(
        "autotune.cli.explain", "explain", "Why a configuration fits or not, and what would make it fit."
    ),
    "status": LazyCommand(
        "autotune.cli.status", "status", "How a study stands: running or not, counts, the best."
    ),
    "best": LazyCommand("autotune.cli.best", "best", "The winner of a study, and what quality would cost."),
    "list": LazyCommand("autotune.cli.listing", "list_command", "The studies there are."),
    "show": LazyCommand("autotune.cli.show", "show", "All of a study, or of one of its trials."),
    "export": LazyCommand(
        "autotune.cli.export", "export", "Write the winner's folder: DeepSpeed JSON, script, README."
    ),
    "study": LazyCommand(
        "autotune.cli.study", "study_group", "Studies that travel or go: export, import, copy, delete, prune."
    ),
    "report": LazyCommand("autotune.cli.report", "report", "A study as one self-contained HTML page."),
    "init": LazyCommand("autotune.cli.init", "init", "Write a commented configuration file, autotune.toml."),
    "models": LazyCommand("autotune.cli.models", "models", "The model cards that are shipped."),
    "spaces": LazyCommand(
        "autotune.cli.spaces", "spaces", "The search spaces that are shipped, or one of them."
    ),
    "doctor": LazyCommand(
        "autotune.cli.doctor.command",
        "doctor",
        "Whether this machine is ready, or predictions hold on it.",
    ),
    "completion": LazyCommand(
        "autotune.cli.completion", "completion", "The script that completes all this in bash, zsh, fish."
    ),
}


@click.group(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 a winner, 1 nothing fits, 2 usage or environment, 130 interrupted.",
)
@click.version_option(__version__, prog_name="autotune", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, envvar="AUTOTUNE_DEBUG", help="Show the traceback of an error.")
@click.option("--config", metavar="FILE", help="A configuration file instead of autotune.toml here.")
def cli(debug: bool, config: str | None) -> None:
    """Find the fastest configuration that trains a model inside a GPU memory budget.

    \b
        autotune run --model Qwen/Qwen2.5-7B --gpu-budget 24GB

    A flag wins over the environment (AUTOTUNE_*), that over autotune.toml, and that over the defaults.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: the arguments after the program's name; None takes the process's own.

    Returns:
        The exit code: 0 a winner (or success), 1 nothing fits, 2 usage or environment, 130 interrupted.
    """
    if args is None:
        occupy_standard_streams()
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        check_utf8(arguments, os.environ)
        answer = cli.main(args=arguments, prog_name="autotune", standalone_mode=False, obj=arguments)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return int(ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort):
        # click turns a KeyboardInterrupt of a command into Abort.
        return report_interrupt()
    except BrokenPipeError:
        drop_stdout()
        return 0
    except Exception as error:
        return report(error, debug=debug_asked(arguments))
    return answer if isinstance(answer, int) else 0


def report_interrupt() -> int:
    """Say that the user ended it, and return 130."""
    click.echo("interrupted", err=True)
    return int(ExitCode.INTERRUPTED)
