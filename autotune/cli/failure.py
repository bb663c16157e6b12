"""Errors as the user sees them: one or two lines on stderr, an exit code; a traceback only with `--debug`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback

import click
from click.core import ParameterSource

from autotune.errors import AutotuneError, ExitCode

ENVIRONMENT_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
    }
)


def report(error: BaseException, *, debug: bool) -> int:
    """Print one error and return the exit code it stands for."""
    if debug and not isinstance(error, click.ClickException):
        _write("".join(traceback.format_exception(error)))
    message, hint, code = describe(error)
    _write(f"error: {message}\n" + (f"  {hint}\n" if hint else ""))
    return code


def describe(error: BaseException) -> tuple[str, str, int]:
    """Message, hint (may be empty) and exit code of an error; each of the two texts on one line."""
    if isinstance(error, AutotuneError):
        return one_line(error.message), one_line(error.hint), int(error.exit_code)
    if isinstance(error, click.ClickException):
        return _describe_click(error)
    if isinstance(error, OSError) and error.errno in ENVIRONMENT_ERRNOS:
        where = f": {error.filename}" if error.filename else ""
        return one_line(f"{error.strerror}{where}"), "make room or give another folder", int(ExitCode.USAGE)
    kind = type(error).__name__
    text = one_line(str(error))
    return (
        f"internal error ({kind}{': ' + text if text else ''})",
        "please report it; --debug shows the traceback",
        int(ExitCode.USAGE),
    )


def _describe_click(error: click.ClickException) -> tuple[str, str, int]:
    message = one_line(error.format_message()).rstrip(".")
    # click's name for a type with bounds.
    message = message.replace("is not a valid integer range", "is not a whole number")
    hint = ""
    if isinstance(error, click.BadParameter) and _is_from_environment(error):
        message += f" (from {error.param.envvar})"  # type: ignore[union-attr]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"'{error.ctx.command_path} --help' lists what there is"
    return message[:1].lower() + message[1:], hint, int(ExitCode.USAGE)


def _is_from_environment(error: click.BadParameter) -> bool:
    if error.ctx is None or error.param is None or error.param.name is None:
        return False
    return error.ctx.get_parameter_source(error.param.name) is ParameterSource.ENVIRONMENT


def one_line(text: str) -> str:
    """The text with every run of white space, line ends included, as one space."""
    return " ".join(text.split())


def debug_asked(args: list[str]) -> bool:
    """Whether the traceback is wanted: looked up before parsing, since parsing itself may fail."""
    return "--debug" in args or os.environ.get("AUTOTUNE_DEBUG", "").lower() in {"1", "true", "yes", "on"}


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
