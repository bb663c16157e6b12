"""Predicting a study's points in a thread beside the search: before the first trial and while trials run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from threading import Condition, Thread
from typing import TYPE_CHECKING

from autotune.errors import AutotuneError
from autotune.prediction import Prediction, PredictionFailure

if TYPE_CHECKING:
    from autotune.prediction import PointPredictor
    from trials.wire import Point

Found = tuple["Point", Prediction | PredictionFailure]
# Tracing beside trials takes this share of the processors; on a machine with fewer it would disturb them.
SHARE_OF_PROCESSORS = 4
LEAST_PROCESSORS = 8


def workers_beside_trials() -> int:
    """How many tracing processes may work while a trial is timed; 0 where it would notice."""
    processors = os.cpu_count() or 1
    return 0 if processors < LEAST_PROCESSORS else processors // SHARE_OF_PROCESSORS


class Background:
    """Predicts groups of points one after the other, in a thread of its own.

    Args:
        points: makes predictions; its tracing processes are shared.
        groups: what is predicted, the most urgent first.
        limit: so many tracing processes at most.
    """

    def __init__(self, points: PointPredictor, groups: Sequence[Sequence[Point]], limit: int) -> None:
        predictor, self._share = points.predictor.beside(points.processes, limit)
        self._points = points.of(predictor)
        self._predictor = predictor
        self._groups = list(groups)
        self._wanted: list[Point] = []
        self._found: list[list[Found]] = []
        self._error: str | None = None
        self._is_busy = False
        self._is_ended = False
        self._changed = Condition()
        # The process may end without waiting for it.
        self._thread = Thread(target=self._work, name="predicting", daemon=True)
        self._thread.start()

    def limit(self, workers: int) -> None:
        """From now on take so many tracing processes at most."""
        self._share.limit(workers)

    def want(self, points: Sequence[Point]) -> None:
        """Make these points' own traces next, before further groups."""
        with self._changed:
            self._wanted.extend(points)
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until something new is there or everything is done, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._found) or self.is_done, seconds)

    def take(self) -> list[Found]:
        """What has been predicted since it was asked last."""
        with self._changed:
            found, self._found = self._found, []
        return [one for group in found for one in group]

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come unless it is wanted."""
        with self._changed:
            return self._is_ended or not (self._is_busy or self._groups or self._wanted)

    @property
    def error(self) -> str | None:
        """Why it ended before everything was predicted; None where it did not."""
        return self._error

    def finish_group(self) -> None:
        """Begin nothing more, and wait until what is being predicted is done."""
        with self._changed:
            self._groups.clear()
            self._wanted.clear()
            self._changed.wait_for(lambda: self.is_done)
            # What is wanted from here on is not begun, only to be cut short by `close`.
            self._is_ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """End, without waiting for what is being traced."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._share.close()
        # Reading what a killed process has written takes no time; a replay may take a second.
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._predictor.close()

    def _work(self) -> None:
        try:
            for points, exact in self._jobs():
                found: list[Found] = list(zip(points, self._points.many(points, exact=exact), strict=True))
                with self._changed:
                    if self._is_ended:
                        # What was cut short looks like what cannot be predicted.
                        return
                    self._found.append(found)
                    self._is_busy = False
                    self._changed.notify_all()
        except (AutotuneError, OSError) as error:
            self._error = error.message if isinstance(error, AutotuneError) else str(error)
        finally:
            with self._changed:
                self._is_ended = True
                self._changed.notify_all()

    def _jobs(self) -> Iterator[tuple[list[Point], bool]]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended or bool(self._groups or self._wanted))
                if self._is_ended:
                    return
                exact = bool(self._wanted)
                if exact:
                    points, self._wanted = self._wanted, []
                else:
                    points = list(self._groups.pop(0))
                self._is_busy = True
            yield points, exact
