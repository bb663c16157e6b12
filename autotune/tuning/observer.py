"""How a study tells what it does: whoever watches implements this, and nothing in `tuning` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from trials.wire import Point, TrialResult


@dataclass(frozen=True)
class Opened:
    """A study is open and about to go on.

    Attributes:
        study: its name.
        stages: what is searched, one line per method.
        measured: trials it holds already; more than none when it is resumed.
        trials: the total that is asked for.
        sampler: what proposes points.
    """

    study: str
    stages: tuple[str, ...]
    measured: int
    trials: int
    sampler: str


@dataclass(frozen=True)
class Progress:
    """How far the search is.

    Attributes:
        measured: trials that have ended, over the whole study.
        trials: the total that is asked for.
        candidates: points that could still be measured.
        seconds_left: until the search's time is up.
        best_point: the fastest configuration so far.
        best_result: what it measured.
        skipped: points that are not launched because they are predicted not to fit.
    """

    measured: int
    trials: int
    candidates: int
    seconds_left: float
    best_point: Point | None = None
    best_result: TrialResult | None = None
    skipped: int = 0

    @property
    def expected(self) -> int:
        """Trials that there will be in all, as far as can be told: of few points no more than there are."""
        return min(self.trials, self.measured + self.candidates)


class Observer(Protocol):
    """What a study reports. Calls come from one thread, in order, and must not raise."""

    def say(self, text: str) -> None:
        """Something the user should know: a decision, a warning. One sentence."""

    def detail(self, text: str) -> None:
        """Something only a curious user wants to know."""

    def opened(self, opened: Opened) -> None:
        """The study is open."""

    def trial_started(self, position: int, point: Point, progress: Progress) -> None:
        """The trial at this position of the study (1 for the first) is about to run."""

    def trial_event(self, event: dict[str, Any]) -> None:
        """The running trial sent an event: `phase`, `step` or `note`."""

    def trial_finished(self, position: int, point: Point, result: TrialResult, progress: Progress) -> None:
        """The trial has ended; `progress` counts it."""

    def confirming(self, point: Point) -> None:
        """The best configuration is about to be measured again, longer, in a fresh process."""

    def confirmed(self, point: Point, result: TrialResult) -> None:
        """That measurement has ended, well or not."""
