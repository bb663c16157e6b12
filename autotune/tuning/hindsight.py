"""After a trial: what it measured beside what was predicted, and what follows for the rest of the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.sizes import format_size
from autotune.tuning.corrections import TOLERANCE, kind_of
from trials.wire import Outcome, Phase, Point, TrialResult

if TYPE_CHECKING:
    from autotune.tuning.foresight import Foresight


@dataclass(frozen=True)
class Difference:
    """The phase in which a trial was furthest from its prediction.

    Attributes:
        phase: of the trial.
        predicted_bytes: peak allocated, as it was expected.
        measured_bytes: the same, measured.
    """

    phase: str
    predicted_bytes: int
    measured_bytes: int

    @property
    def share(self) -> float:
        """How much more was measured than predicted, as a share of what was predicted."""
        return self.measured_bytes / self.predicted_bytes - 1.0


def largest_difference(predicted: Mapping[str, int], measured: Mapping[str, int]) -> Difference | None:
    """The largest difference that is beyond tolerance; None where every phase was predicted.

    Args:
        predicted: peak allocated bytes by phase.
        measured: the same; phases that the trial did not complete are missing.
    """
    found = [
        Difference(phase, predicted[phase], measured[phase])
        for phase in predicted
        if predicted[phase] > 0 and measured.get(phase, 0) > 0
    ]
    beyond = [one for one in found if abs(one.share) > TOLERANCE]
    return max(beyond, key=lambda one: abs(one.share), default=None)


def look_back(
    foresight: Foresight,
    name: str,
    point: Point,
    result: TrialResult,
    say: Callable[[str], None],
) -> None:
    """Compare a trial with its prediction, tell the user of a difference, and correct what is still to come.

    Args:
        foresight: what was predicted.
        name: the trial as the user knows it.
        point: what was tried.
        result: what it reported.
        say: told what the user should know.
    """
    measured = result.phase_peak_allocated_bytes
    expected = _expected(foresight, point)
    if expected is None or not measured:
        return
    difference = largest_difference(expected, measured)
    if difference is not None:
        # Before the prediction is said to be wrong, the point's own trace is heard.
        foresight.exact(point)
        expected = _expected(foresight, point)
        assert expected is not None
        difference = largest_difference(expected, measured)
    made = foresight.made(point)
    assert made is not None
    predicted = made.phase_peak_allocated_bytes
    excluded = foresight.excluded_by_corrections()
    foresight.corrections.learn(point, predicted, measured)
    if difference is None:
        return
    text = f"{name}: {difference_words(difference)}"
    left = {phase: size for phase, size in predicted.items() if phase in measured}
    if foresight.corrections.deltas(point, left):
        text += "; later predictions of its kind are corrected by it"
    else:
        text += f"; the other trials of its kind ({kind_of(point)}) were as predicted"
    say(text)
    newly = foresight.excluded_by_corrections() - excluded
    if newly > 0:
        say(f"with that correction {newly:,} configurations that were predicted to fit are left out")
    elif newly < 0:
        say(f"with that correction {-newly:,} configurations are tried after all")


def _expected(foresight: Foresight, point: Point) -> dict[str, int] | None:
    """Peaks by phase as they were expected: with what was learned before."""
    outlook = foresight.outlook(point)
    return None if outlook is None else outlook.prediction.phase_peak_allocated_bytes


def difference_words(difference: Difference) -> str:
    """`10.2 GiB measured in later step where 10.0 GiB was predicted (2.0 % more)`."""
    more = "more" if difference.share > 0 else "less"
    return (
        f"{format_size(difference.measured_bytes)} measured in {_words(difference.phase)} where "
        f"{format_size(difference.predicted_bytes)} was predicted ({abs(difference.share):.1%} {more})"
    )


def surprise_words(
    name: str, predicted: Mapping[str, Any], result: TrialResult, budget_bytes: int, host_budget_bytes: int
) -> str:
    """What to say of a trial that ran out of memory although it was predicted to fit; empty for any other.

    Args:
        name: the trial as the user knows it.
        predicted: as the study keeps it.
        result: what the trial reported.
        budget_bytes: device memory of one process.
        host_budget_bytes: host memory of one process.
    """
    where = f"in {_words(result.phase)}"
    if result.outcome is Outcome.HOST_OOM and predicted["host_peak_bytes"] <= host_budget_bytes:
        return (
            f"{name} ran out of host memory {where}, although "
            f"{format_size(predicted['host_peak_bytes'])} of {format_size(host_budget_bytes)} was predicted"
            + (f"; it held {format_size(result.host_peak_bytes)}" if result.host_peak_bytes else "")
        )
    afterwards = result.phase in (Phase.EVALUATION, Phase.SAVING)
    foreseen = predicted["confirmed_required_device_bytes" if afterwards else "required_device_bytes"]
    if result.outcome is not Outcome.OOM or foreseen > budget_bytes:
        return ""
    short = result.oom_short_bytes
    needed = (
        f"at least {format_size(budget_bytes + short)}" if short else f"more than {format_size(budget_bytes)}"
    )
    text = (
        f"{name} ran out of memory {where}, although {format_size(foreseen)} of "
        f"{format_size(budget_bytes)} was predicted: it needs {needed}"
    )
    outside, expected = result.outside_allocator_bytes, predicted["outside_allocator_bytes"]
    if outside is not None and outside > expected * (1 + TOLERANCE):
        text += f"; outside the allocator {format_size(outside)} instead of {format_size(expected)}"
    return text


def _words(phase: str) -> str:
    return phase.replace("_", " ")
