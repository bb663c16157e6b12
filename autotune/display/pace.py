"""How long the rest of a search will take, from the trials that this call has seen."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from autotune.tuning.observer import Progress

# The confirmation: a trial's start, twenty measured seconds, an evaluation and a checkpoint.
CONFIRMATION_TRIALS = 3.0
LEAST_CONFIRMATION_SECONDS = 30.0
# Early trials say little of later ones: only so many are looked at.
REMEMBERED_TRIALS = 12


class Pace:
    """Time per trial, what choosing the next one takes included.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: list[float] = []
        self._since: float | None = None
        self._progress: Progress | None = None
        self._progress_at = clock()

    def started(self, progress: Progress) -> None:
        """A trial begins."""
        if self._since is None:
            self._since = self._clock()
        self._keep(progress)

    def finished(self, progress: Progress) -> None:
        """It has ended, and the next one is being chosen."""
        now = self._clock()
        if self._since is not None:
            self._seconds = [*self._seconds, now - self._since][-REMEMBERED_TRIALS:]
        self._since = now
        self._keep(progress)

    def seconds_left(self) -> tuple[float, bool] | None:
        """Until the winner is confirmed, and whether that is an estimate.

        Before a trial has ended there is nothing to estimate from: then it is the time that the search may
        take at most. None before the first trial.
        """
        if self._progress is None:
            return None
        now = self._clock()
        at_most = max(0.0, self._progress.seconds_left - (now - self._progress_at))
        if not self._seconds:
            return at_most, False
        each = statistics.mean(self._seconds)
        trials = self._progress.expected - self._progress.measured
        spent = now - (self._since or now)
        search = min(trials * each, at_most)
        confirmation = max(CONFIRMATION_TRIALS * each, LEAST_CONFIRMATION_SECONDS)
        return max(0.0, search + confirmation - spent), True

    def _keep(self, progress: Progress) -> None:
        self._progress, self._progress_at = progress, self._clock()
