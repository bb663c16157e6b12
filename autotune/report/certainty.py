"""How sure the winner is, in sentences that each say what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autotune.display.words import chance_words, end_words, memory_of, point_words, size_words, speed_words
from autotune.report.contenders import Contender
from autotune.winner.choice import LOWEST_SHARE
from trials.wire import Outcome, Phase, TrialResult

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.tuning.confirm import Chosen

Kind = Literal["good", "caution", "plain"]
# Further apart than this, and outside the longer run's interval, two runs ask for care.
NOTABLE_CHANGE = 0.03
LIKELY_BEATEN = 0.2


@dataclass(frozen=True)
class Statement:
    """One sentence of the evidence.

    Attributes:
        kind: whether it speaks for the winner, asks for care, or only informs.
        text: the sentence.
    """

    kind: Kind
    text: str


def statements(evidence: Evidence, others: list[Contender]) -> list[Statement]:
    """What is known for and against the winner; empty where there is none."""
    chosen = evidence.chosen
    if chosen is None:
        return []
    found = [_confirmation(chosen), *_interval(chosen.measured), *_repeat(chosen), _memory(chosen.measured)]
    tied = sum(other.tied for other in others)
    if tied:
        words = _counted(tied, "other configuration is", "other configurations are")
        found.append(Statement("plain", f"{words} as fast within the noise."))
    elif len(evidence.ranked) > 1 and not evidence.noisy:
        found.append(
            Statement("good", "No other configuration that was measured is as fast within the noise.")
        )
    found += _noise(evidence)
    found += _left(evidence)
    found += _failed(evidence)
    if chosen.measured.gpu is not None and chosen.measured.gpu.other_processes:
        found.append(Statement("caution", "Another process used the GPU while the winner was measured."))
    return [*found, *_extent(evidence)]


def _confirmation(chosen: Chosen) -> Statement:
    longer = chosen.confirmation
    if longer is None:
        return Statement(
            "caution",
            "Not confirmed yet: the figures are those of its short trial. The same command again does it.",
        )
    also = [
        words
        for phase, words in ((Phase.EVALUATION, "an evaluation pass"), (Phase.SAVING, "a checkpoint saved"))
        if phase in longer.phase_peak_allocated_bytes
    ]
    extra = f", with {' and '.join(also)}" if also else ""
    return Statement("good", f"Confirmed: measured again in a longer run, in a fresh process{extra}.")


def _interval(result: TrialResult) -> list[Statement]:
    low, high, speed = result.tokens_per_second_low, result.tokens_per_second_high, result.tokens_per_second
    if low is None or high is None or not speed:
        return []
    steps = len(result.step_seconds)
    over = f" over {_counted(steps, 'timed optimizer step', 'timed optimizer steps')}" if steps else ""
    text = f"The median{over} lies between {low:,.0f} and {speed_words(high)} (95% interval, "
    return [Statement("plain", text + f"{(low - speed) / speed:+.1%} to {(high - speed) / speed:+.1%}).")]


def _repeat(chosen: Chosen) -> list[Statement]:
    first = chosen.record.result
    if chosen.confirmation is None or first is None or not first.tokens_per_second:
        return []
    speed = chosen.confirmation.tokens_per_second
    if not speed:
        return []
    change = speed / first.tokens_per_second - 1.0
    low, high = chosen.confirmation.tokens_per_second_low, chosen.confirmation.tokens_per_second_high
    expected = low is not None and high is not None and low <= first.tokens_per_second <= high
    kind: Kind = "good" if expected or abs(change) <= NOTABLE_CHANGE else "caution"
    text = f"The search measured {speed_words(first.tokens_per_second)}, the longer run {speed_words(speed)}"
    return [Statement(kind, f"{text} ({change:+.1%}).")]


def _memory(result: TrialResult) -> Statement:
    needed = size_words(memory_of(result))
    if result.required_verified:
        return Statement(
            "good", f"It was run under a memory limit of {needed}, which is what it is said to need."
        )
    if result.required_device_bytes is not None:
        return Statement(
            "plain",
            f"The {needed} it needs are computed from what it allocated; it was not run under that limit.",
        )
    return Statement("plain", f"It ran inside the budget and held {needed}.")


def _noise(evidence: Evidence) -> list[Statement]:
    """What the intervals alone would call as fast, and why it is not."""
    if not evidence.noisy:
        return []
    one = evidence.noisy[0]
    speed = one.result.tokens_per_second if one.result else None
    several = len(evidence.noisy) > 1
    overlap = "have intervals that overlap" if several else "has an interval that overlaps"
    who = f"Trial {one.position} ({point_words(one.point)}, {speed_words(speed)})"
    who += f" and {_counted(len(evidence.noisy) - 1, 'other', 'others')}" if several else ""
    text = (
        f"{who} {overlap} the winner's: the measurements are noisy. {'They do' if several else 'It does'} "
        f"not count as equally fast, for the medians are more than {1 - LOWEST_SHARE:.0%} apart, and more "
        "than that is never given up for noise."
    )
    return [Statement("caution", text)]


def _left(evidence: Evidence) -> list[Statement]:
    from autotune.tuning.certainty import is_guess

    remaining = evidence.remaining
    if remaining is None:
        return []
    results = [record.result for record in evidence.records if record.result is not None]
    measured = sum(result.outcome in (Outcome.OK, Outcome.STOPPED) for result in results)
    if is_guess(remaining, measured):
        words = _counted(measured, "trial is", "trials are")
        text = (
            f"{words} too few to say what is left to gain in {remaining.points:,} unmeasured configurations."
        )
        return [Statement("caution", text)]
    if not remaining.points:
        return [Statement("good", "Every configuration of the space that fits was measured.")]
    share = f"{remaining.share:.1%}" if remaining.share <= 1.0 else "more than 100%"
    margin = f"more than {100 * remaining.margin:g}% " if remaining.margin else ""
    beaten = chance_words(remaining.beaten).replace(" %", "%")
    text = (
        f"Of {remaining.points:,} unmeasured configurations one is {margin}faster with a probability of "
        f"{beaten}; {share} is expected to be left to gain."
    )
    return [Statement("plain" if remaining.beaten < LIKELY_BEATEN else "caution", text)]


def _failed(evidence: Evidence) -> list[Statement]:
    found = []
    for record in evidence.failed_confirmations:
        assert record.result is not None
        if record.result.outcome is Outcome.OK:
            end = f"needed {size_words(memory_of(record.result))}, more than the budget"
        else:
            end = f"ended in {record.result.outcome.value} {end_words(record.result)}".rstrip()
        found.append(Statement("caution", f"The longer run of {point_words(record.point)} {end}."))
    return found


def _extent(evidence: Evidence) -> list[Statement]:
    measured = len(evidence.records)
    found = []
    if evidence.planned is not None and measured < evidence.planned:
        text = f"{measured} of {evidence.planned} trials were measured; the rest were not needed or follow."
        found.append(Statement("plain", text))
    if evidence.skipped:
        found.append(
            Statement(
                "plain",
                f"{_counted(evidence.skipped, 'configuration was', 'configurations were')} never launched, "
                "because memory was predicted not to suffice.",
            )
        )
    if evidence.running:
        found.append(
            Statement(
                "caution",
                f"{_counted(evidence.running, 'trial is', 'trials are')} still running: this is not the end.",
            )
        )
    return found


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
