"""Progress of commands that predict: on stderr, in a log file, and on a terminal the time that passes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from autotune.errors import EnvironmentProblem

if TYPE_CHECKING:
    from types import TracebackType

    from autotune.display.screen import Screen


class Telling:
    """Says what is being done until it is closed; a context manager.

    Args:
        quiet: nothing on stderr.
        log_file: a file that gets it as well, with times; None: none.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """

    def __init__(self, *, quiet: bool, log_file: str | None = None) -> None:
        from autotune.display.lines import Lines
        from autotune.display.screen import can_draw
        from autotune.display.stream import ProgressStream

        self._files = contextlib.ExitStack()
        self._members: list[Screen] = []
        log = self._files.enter_context(opened_log(log_file))
        if log is not None:
            self._members.append(Lines(log, timestamps=True))
        if quiet:
            return
        stream = ProgressStream(sys.stderr)
        if can_draw(sys.stderr):
            from autotune.display.live import LiveTable

            table = LiveTable(stream)
            table.show_waiting()
            self._members.append(table)
        else:
            self._members.append(Lines(stream))

    def __enter__(self) -> Telling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def say(self, text: str) -> None:
        """One line."""
        for member in self._members:
            member.say(text)

    def close(self) -> None:
        """Leave the terminal to the result; nothing is said any more."""
        for member in self._members:
            member.close()
        self._members = []
        self._files.close()


@contextlib.contextmanager
def opened_log(path: str | None) -> Iterator[TextIO | None]:
    """The log file, to be appended to; None where none is wanted.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - only opening it is the user's mistake
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the log file {path}: {error.strerror}", "give another --log-file"
        ) from error
    with file:
        yield file
