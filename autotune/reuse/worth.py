"""What a head start was worth: trials and minutes against a start from nothing.

Nobody has run the other search, so its length is predicted: the same sampler, from nothing, on the speeds
that are believed of all points once the study is over. Where those speeds are far off, so is this; it is told
as a prediction, and a head start that cost something is told as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.reuse.observations import speed_of
from autotune.reuse.virtual import WITHIN, VirtualSearch
from autotune.study.judging import RAN
from autotune.study.record import Record


@dataclass(frozen=True)
class Worth:
    """What a head start saved.

    Attributes:
        trials_with: measured until the study was within `WITHIN` of its best.
        trials_without: predicted for a start from nothing.
        seconds_per_trial: the study's, on average.
    """

    trials_with: int
    trials_without: int
    seconds_per_trial: float

    @property
    def trials_saved(self) -> int:
        """Below 0 where the head start cost something."""
        return self.trials_without - self.trials_with

    @property
    def minutes_saved(self) -> float:
        """The same in time."""
        return self.trials_saved * self.seconds_per_trial / 60

    def words(self) -> str:
        """One line for people."""
        trials = f"{self.trials_with} {_trials(self.trials_with)}"
        near = f"with the head start {trials} to within {WITHIN:.0%} of the study's best"
        alone = f"a start from nothing would have taken {self.trials_without}, by prediction"
        if self.trials_saved > 0:
            return f"{near}; {alone}: about {self.minutes_saved:.1f} minutes saved"
        if self.trials_saved == 0:
            return f"{near}; {alone}: nothing saved"
        return f"{near}; {alone}: about {-self.minutes_saved:.1f} minutes lost"

    def as_json(self) -> dict[str, Any]:
        """What `autotune run --json` says of it."""
        return {
            "trials": self.trials_with,
            "trials_from_nothing_predicted": self.trials_without,
            "trials_saved_predicted": self.trials_saved,
            "minutes_saved_predicted": round(self.minutes_saved, 2),
        }


def worth_of(records: Sequence[Record], from_nothing: VirtualSearch) -> Worth | None:
    """What a study's head start was worth.

    Args:
        records: its trials that are over, in order.
        from_nothing: the search that was not made, on believed speeds.

    Returns:
        None where nothing ran, or where the search from nothing found nothing either.
    """
    speeds = [
        (speed_of(record) or 0.0) if record.result and record.result.outcome in RAN else 0.0
        for record in records
    ]
    best = max(speeds, default=0.0)
    if best <= 0.0 or from_nothing.trials is None:
        return None
    first = next(position for position, speed in enumerate(speeds, 1) if speed >= (1 - WITHIN) * best)
    seconds = [
        (record.finished_at - record.started_at).total_seconds()
        for record in records
        if record.finished_at is not None
    ]
    return Worth(first, from_nothing.trials, sum(seconds) / max(1, len(seconds)))


def _trials(count: int) -> str:
    return "trial" if count == 1 else "trials"
