"""Ctrl-C, SIGTERM and a closed terminal: the first ends the search cleanly, the second ends at once.

A signal raises `KeyboardInterrupt` where it arrives, except while the study is being written (`held`): there
it waits until the record is whole. A closed terminal (SIGHUP) does not end a study: a night's work goes on
without its screen, and `autotune status` shows it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from autotune.errors import ExitCode

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Installs the handlers for the length of a `with` block, and puts the former ones back."""

    def __init__(self, on_hangup: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._on_hangup = on_hangup
        self._held = 0
        self._waiting = False
        self._former: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether the user asked for the end."""
        return self.count > 0

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._former[number] = signal.signal(number, self._stop)
        # Under nohup it is ignored already, and stays so.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._former[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hangup)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let no first signal in until the block has ended; then raise what came."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._waiting and self._held == 0:
            self._waiting = False
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= 3:
            # Clean-up itself hangs: leave now, as asked.
            os._exit(int(ExitCode.INTERRUPTED))
        if self._held and self.count == 1:
            self._waiting = True
            return
        raise KeyboardInterrupt

    def _hangup(self, number: int, frame: FrameType | None) -> None:
        self._on_hangup()
