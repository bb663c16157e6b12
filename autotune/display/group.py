"""Several observers as one, silent until the study is open: the screen and the log file see the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from autotune.display.screen import Screen
from autotune.tuning.observer import Opened, Progress
from trials.wire import Point, TrialResult


class Group:
    """Passes everything on to each of its members, in order.

    What is said before the study is open is kept back until then, so that a request that is refused gets its
    one or two lines of error and nothing else.

    Args:
        members: who is told.
        patience_seconds: what is kept back is let out after this long at the latest; None: it waits.
    """

    def __init__(self, members: Sequence[Screen], *, patience_seconds: float | None = None) -> None:
        self._members = tuple(members)
        self._kept: list[str] | None = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        if patience_seconds is not None:
            self._timer = threading.Timer(patience_seconds, self._let_out)
            self._timer.daemon = True
            self._timer.start()

    def say(self, text: str) -> None:
        """To all, once the study is open."""
        with self._lock:
            if self._kept is not None:
                self._kept.append(text)
                return
        for member in self._members:
            member.say(text)

    def detail(self, text: str) -> None:
        """To all."""
        for member in self._members:
            member.detail(text)

    def opened(self, opened: Opened) -> None:
        """To all, after what was kept back."""
        self._stop_waiting()
        self._let_out()
        for member in self._members:
            member.opened(opened)

    def trial_started(self, position: int, point: Point, progress: Progress) -> None:
        """To all."""
        for member in self._members:
            member.trial_started(position, point, progress)

    def trial_event(self, event: dict[str, Any]) -> None:
        """To all."""
        for member in self._members:
            member.trial_event(event)

    def trial_finished(self, position: int, point: Point, result: TrialResult, progress: Progress) -> None:
        """To all."""
        for member in self._members:
            member.trial_finished(position, point, result, progress)

    def confirming(self, point: Point) -> None:
        """To all."""
        for member in self._members:
            member.confirming(point)

    def confirmed(self, point: Point, result: TrialResult) -> None:
        """To all."""
        for member in self._members:
            member.confirmed(point, result)

    def close(self) -> None:
        """Close all; what is still kept back is not said any more."""
        self._stop_waiting()
        for member in self._members:
            member.close()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _let_out(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, None
            for text in kept or []:
                for member in self._members:
                    member.say(text)
