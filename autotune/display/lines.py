"""Progress as plain lines: for pipes, files and terminals that cannot draw."""

from __future__ import annotations

import time
from typing import Any, TextIO

from autotune.counting import counted
from autotune.display.stream import ProgressStream
from autotune.display.words import end_words, memory_of, phase_words, point_words, size_words, speed_words
from autotune.tuning.observer import Opened, Progress
from trials.wire import Outcome, Point, TrialResult


class Lines:
    """One line per trial, one per message.

    Args:
        stream: where the lines go.
        verbose: whether phases, steps and notes of the running trial are written too.
        timestamps: whether each line begins with the local time.
    """

    def __init__(
        self, stream: TextIO | ProgressStream, *, verbose: bool = False, timestamps: bool = False
    ) -> None:
        self._stream = stream
        self._verbose = verbose
        self._timestamps = timestamps
        self._best: Point | None = None

    def say(self, text: str) -> None:
        """One line."""
        self._line(text)

    def detail(self, text: str) -> None:
        """One line, where the user wants to see it all."""
        if self._verbose:
            self._line(text)

    def opened(self, opened: Opened) -> None:
        """The study's name and its size."""
        for text in opened_words(opened):
            self._line(text)

    def trial_started(self, position: int, point: Point, progress: Progress) -> None:
        """Nothing: a trial's line comes when it has ended."""
        self._best = progress.best_point
        self.detail(f"trial {position} of {expected_words(progress)} starts: {point_words(point)}")

    def trial_event(self, event: dict[str, Any]) -> None:
        """Only for who wants to see it all."""
        self.detail("  " + event_words(event))

    def trial_finished(self, position: int, point: Point, result: TrialResult, progress: Progress) -> None:
        """The trial's line."""
        is_best = progress.best_point == point != self._best
        self._line(trial_line(position, max(position, progress.expected), point, result, is_best=is_best))

    def confirming(self, point: Point) -> None:
        """What is measured again."""
        self._line(f"confirming the best in a fresh process: {point_words(point)}")

    def confirmed(self, point: Point, result: TrialResult) -> None:
        """How it ended."""
        self._line(confirmed_words(result))

    def close(self) -> None:
        """Nothing to put away."""

    def _line(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S ") if self._timestamps else ""
        self._stream.write(f"{stamp}{text}\n")
        self._stream.flush()


def opened_words(opened: Opened) -> list[str]:
    """The lines that begin a study."""
    again = f", {opened.measured} of them measured already" if opened.measured else ""
    return [
        f"study {opened.study}: {counted(opened.trials, 'trial')}{again}, sampler {opened.sampler}",
        *opened.stages,
    ]


def expected_words(progress: Progress) -> str:
    """How many trials there will be: `12`, or `about 9` where points may run out before that."""
    return f"{progress.trials}" if progress.expected == progress.trials else f"about {progress.expected}"


def trial_line(position: int, trials: int, point: Point, result: TrialResult, *, is_best: bool) -> str:
    """A finished trial in one line."""
    width = len(str(trials))
    head = f"trial {position:>{width + 1}}/{trials}  {result.outcome.value:<8}  {point_words(point)}"
    if result.outcome in (Outcome.OK, Outcome.STOPPED):
        tail = f"{size_words(memory_of(result)):>9}  {speed_words(result.tokens_per_second):>12}"
        return f"{head:<72}  {tail}{'  best' if is_best else ''}"
    return f"{head:<72}  {end_words(result)}".rstrip()


def confirmed_words(result: TrialResult) -> str:
    """How the winner's longer run ended."""
    if result.outcome is Outcome.OK:
        return f"confirmed: {speed_words(result.tokens_per_second)} in {size_words(memory_of(result))}"
    return f"not confirmed: {result.outcome.value} {end_words(result)}"


def event_words(event: dict[str, Any]) -> str:
    """A running trial's event in words."""
    match event.get("event"):
        case "phase":
            return phase_words(str(event["phase"]))
        case "step":
            timed = "" if event.get("timed") else " (warm-up)"
            speed = speed_words(event["tokens_per_second"])
            return f"step {event['index']}: {event['seconds']:.3f} s, {speed}{timed}"
        case "note":
            return str(event["text"])
        case other:
            return f"{other}: {event}"
