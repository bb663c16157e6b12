"""Progress on a terminal: a live table of trials, the phase of the current one, and what is left."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autotune.counting import counted
from autotune.display.lines import confirmed_words, expected_words, opened_words
from autotune.display.pace import Pace
from autotune.display.stream import ProgressStream
from autotune.display.words import (
    duration_words,
    end_words,
    memory_of,
    phase_words,
    point_words,
    size_words,
    speed_words,
)
from autotune.tuning.observer import Opened, Progress
from trials.wire import Outcome, Point, TrialResult

SHOWN_TRIALS = 12
LINES_BELOW = 8
WIDE_COLUMNS = 110
STYLES = {Outcome.OK: "green", Outcome.STOPPED: "dim", Outcome.OOM: "yellow", Outcome.HOST_OOM: "yellow"}


class LiveTable:
    """The last trials, the best, what is being done and for how long, and what is left; redrawn in place.

    Args:
        stream: a terminal.
    """

    def __init__(self, stream: ProgressStream) -> None:
        self._console = Console(file=stream, highlight=False)  # type: ignore[arg-type]
        self._rows: deque[tuple[int, Point, TrialResult, bool]] = deque(maxlen=SHOWN_TRIALS)
        self._progress: Progress | None = None
        self._pace = Pace()
        self._current: tuple[str, Point] | None = None
        self._doing = ""
        self._doing_since = time.monotonic()
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """A line above the table, and what is being done until the next one."""
        self._console.print(Text(text))
        if self._current is None:
            self._do("still at it")

    def detail(self, text: str) -> None:
        """Nothing: a live table shows the phase."""

    def opened(self, opened: Opened) -> None:
        """The lines that begin a study, and the table from here on."""
        for text in opened_words(opened):
            self.say(text)
        self._draw()

    def trial_started(self, position: int, point: Point, progress: Progress) -> None:
        """The current trial."""
        self._progress = progress
        self._pace.started(progress)
        self._begin(f"trial {position} of {expected_words(progress)}", point)

    def trial_event(self, event: dict[str, Any]) -> None:
        """The current trial's phase and speed."""
        if event["event"] == "phase":
            self._do(phase_words(str(event["phase"])))
        elif event["event"] == "step":
            speed = event["tokens_per_second"]
            self._do(f"step {event['index']}" + (f", {speed_words(speed)}" if speed is not None else ""))
        elif event["event"] == "note":
            self._do(str(event["text"]))

    def trial_finished(self, position: int, point: Point, result: TrialResult, progress: Progress) -> None:
        """A row of its own."""
        was_best = self._progress.best_point if self._progress else None
        self._rows.append((position, point, result, progress.best_point == point != was_best))
        self._progress = progress
        self._pace.finished(progress)
        self._current = None
        self._do("choosing the next configuration")
        self._refresh()

    def confirming(self, point: Point) -> None:
        """The current trial is the winner's longer run."""
        self._begin("confirming", point)

    def confirmed(self, point: Point, result: TrialResult) -> None:
        """How that ended."""
        self._current = None
        self.say(confirmed_words(result))
        self._do("writing down what was found")

    def close(self) -> None:
        """Leave the table on the screen as it is."""
        if self._live is not None:
            self._current, self._doing, self._progress = None, "", None
            self._refresh()
            self._live.stop()
            self._live = None

    def show_waiting(self) -> None:
        """From now on show for how long the last thing that was said has been going on."""
        self._do("still at it")
        self._draw()

    def _begin(self, title: str, point: Point) -> None:
        self._current = (title, point)
        self._do("starting")
        self._draw()

    def _draw(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=4,
                # Results have stdout to themselves, also while the table is up.
                redirect_stdout=False,
            )
            self._live.start()

    def _do(self, what: str) -> None:
        self._doing, self._doing_since = what, time.monotonic()

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._rows:
            parts.append(self._table())
        current = self._current  # drawn from another thread than it is set in
        if current is not None:
            title, point = current
            parts.append(Text.assemble((title, "bold"), f"  {point_words(point)}"))
        if self._doing:
            seconds = duration_words(time.monotonic() - self._doing_since)
            parts.append(Text(f"  {self._doing} ({seconds})", style="cyan"))
        if self._progress is not None:
            parts += self._summary(self._progress)
        return Group(*parts)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("outcome", no_wrap=True)
        table.add_column("point", ratio=1)
        table.add_column("memory", justify="right", no_wrap=True)
        table.add_column("tok/s", justify="right", no_wrap=True)
        for position, point, result, is_best in list(self._rows)[-self._shown() :]:
            good = result.outcome in (Outcome.OK, Outcome.STOPPED)
            words = point_words(point) if good else f"{point_words(point)}: {end_words(result)}"
            speed = speed_words(result.tokens_per_second).removesuffix(" tok/s")
            table.add_row(
                str(position),
                Text(result.outcome.value, style=STYLES.get(result.outcome, "red")),
                Text(words),
                size_words(memory_of(result)) if good else "",
                Text(speed + (" *" if is_best else "  "), style="bold" if is_best else "") if good else "",
            )
        return table

    def _shown(self) -> int:
        """How many trials leave room for the lines below them; a long point may take two lines."""
        width, height = self._console.size
        return max(1, min(SHOWN_TRIALS, (height - LINES_BELOW) // (1 if width >= WIDE_COLUMNS else 2)))

    def _summary(self, progress: Progress) -> list[RenderableType]:
        parts: list[RenderableType] = []
        if progress.best_point is not None and progress.best_result is not None:
            speed, memory = progress.best_result.tokens_per_second, memory_of(progress.best_result)
            words = f"{speed_words(speed)} in {size_words(memory)}: {point_words(progress.best_point)}"
            parts.append(Text.assemble(("best ", "bold green"), words))
        trials = max(0, progress.expected - progress.measured)
        points = f"{counted(max(0, progress.candidates), 'point')} left"
        if progress.skipped:
            points += f", {progress.skipped:,} predicted not to fit"
        parts.append(Text(f"{counted(trials, 'trial')} left, {self._time_left()}, {points}", style="dim"))
        return parts

    def _time_left(self) -> str:
        left = self._pace.seconds_left()
        if left is None:
            return "time left unknown"
        seconds, estimated = left
        return f"{'about' if estimated else 'at most'} {duration_words(seconds)} left"
