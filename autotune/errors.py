"""The project's own errors: what is wrong, what to do about it, and the exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line answers to the shell."""

    WINNER = 0
    NOTHING_FITS = 1
    USAGE = 2
    INTERRUPTED = 130


class AutotuneError(Exception):
    """A mistake of the user or of the environment, told in one or two lines and never as a traceback.

    Attributes:
        message: what is wrong, without a final full stop.
        hint: what to do about it; may be empty.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(AutotuneError):
    """The request itself is wrong: a bad flag, a bad value, an impossible combination."""


class EnvironmentProblem(AutotuneError):
    """The machine lacks something: a package, a device, a writable folder, a readable storage."""


class NothingFits(AutotuneError):
    """The study is finished and no configuration trains inside the budget."""

    exit_code = ExitCode.NOTHING_FITS
