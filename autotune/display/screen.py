"""What the command line asks of a display: to observe a study, and to put itself away."""

from __future__ import annotations

import os
from typing import Protocol, TextIO

from autotune.display.stream import ProgressStream
from autotune.tuning.observer import Observer

# Most mistakes are found sooner, and then stand alone; whoever waits longer sees that something happens.
PATIENCE_SECONDS = 0.45
LEAST_PATIENCE_SECONDS = 0.05


class Screen(Observer, Protocol):
    """An observer that may hold the terminal."""

    def close(self) -> None:
        """Leave the terminal as it was found, the last state still to be read."""


def open_screen(
    stderr: TextIO, *, quiet: bool, verbose: bool, log: TextIO | None, waited_seconds: float = 0.0
) -> tuple[Screen, ProgressStream]:
    """The display that suits the terminal and the flags, and its stream, to be closed on a hang-up.

    Args:
        stderr: where progress goes; results have stdout to themselves.
        quiet: no progress.
        verbose: every phase and note; as lines, since there are too many to draw.
        log: an open file that gets all of it as well.
        waited_seconds: how long the user has waited for the first line already.
    """
    from autotune.display.group import Group
    from autotune.display.lines import Lines

    stream = ProgressStream(stderr)
    members: list[Screen] = []
    if not quiet:
        if can_draw(stderr) and not verbose:
            from autotune.display.live import LiveTable

            members.append(LiveTable(stream))
        else:
            members.append(Lines(stream, verbose=verbose))
    if log is not None:
        members.append(Lines(log, verbose=True, timestamps=True))
    patience = max(LEAST_PATIENCE_SECONDS, PATIENCE_SECONDS - waited_seconds)
    return Group(members, patience_seconds=patience), stream


def can_draw(stream: TextIO) -> bool:
    """Whether live drawing is possible: a terminal that understands cursor movements."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
