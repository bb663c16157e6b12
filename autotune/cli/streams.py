"""What a process may start without: its standard streams (cron jobs, daemons), arguments in UTF-8."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from autotune.errors import UsageError


def occupy_standard_streams() -> None:
    """Point what is closed of stdin, stdout and stderr at nothing.

    Otherwise the first file that is opened takes its number, and what a library prints lands in it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def check_utf8(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Refuses what is not UTF-8 before anything is measured: no file that trainers read could hold it.

    Args:
        arguments: of the command line.
        environment: variables; only those of autotune are looked at.

    Raises:
        UsageError: one is not; bytes that are not UTF-8 arrive as lone surrogates.
    """
    named = {f"{name}=": value for name, value in environment.items() if name.startswith("AUTOTUNE_")}
    for place, text in [*(("", argument) for argument in arguments), *named.items()]:
        if any("\ud800" <= one <= "\udfff" for one in text):
            shown = os.fsencode(text).decode("utf-8", "replace")
            raise UsageError(
                f"this is not UTF-8: {place}{shown}", "rename the file or folder: exported files are UTF-8"
            )
