"""The winner, the price list and what was missing, as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.display.columns import fields, table
from autotune.display.words import (
    chance_words,
    duration_words,
    memory_of,
    point_words,
    size_words,
    speed_words,
)
from autotune.sizes import format_size
from autotune.winner.choice import LOWEST_SHARE
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.throughput import Remaining
    from autotune.tuning.confirm import Chosen
    from autotune.tuning.findings import Findings, RunResult
    from autotune.tuning.shortfall import PredictedShortfall
    from autotune.winner import Price

SHOWN_TIES = 3
MOST_FOR_NOISE = f"{1 - LOWEST_SHARE:.0%}".replace("%", " %")


def run_text(result: RunResult) -> str:
    """What `autotune run` says at the end where there is a winner."""
    from autotune.export.script import start_command

    parts = [findings_text(result.findings)]
    if result.export_dir is not None:
        start = start_command(result.findings.gpus, str(result.export_dir / "train.py"))
        files = [(f"for {title}", f"{result.export_dir / name}") for title, name in result.trainers.items()]
        parts.append(
            fields(
                [
                    ("exported", str(result.export_dir)),
                    ("start it", f"{start}  (README.md there says more)"),
                    *files,
                    ("took", duration_words(result.wall_seconds)),
                ]
            )
        )
    return "\n\n".join(parts)


def findings_text(findings: Findings) -> str:
    """Winner, price list and counts."""
    parts = []
    if findings.chosen is None:
        parts.append(no_winner_words(findings))
    else:
        parts.append(winner_text(findings.chosen, findings.budget_bytes))
    if findings.prices:
        parts.append("what quality costs\n" + prices_text(findings.prices))
    parts.append(
        fields(
            [
                ("how sure", how_sure(findings)),
                ("as fast", ties_words(findings)),
                ("noisy", noise_words(findings)),
                ("study", findings.study),
                ("trials", counts_text(findings)),
            ]
        )
    )
    return "\n\n".join(parts)


def no_winner_words(findings: Findings) -> str:
    """That nothing was found, and of memory only where it was memory."""
    failed = {outcome for outcome, count in findings.counts.items() if count}
    if not failed:
        return "no configuration was measured so far"
    if failed == {Outcome.HOST_OOM.value}:
        return "no configuration fits the host budget so far"
    budget = format_size(findings.budget_bytes)
    memory = {Outcome.OOM.value, Outcome.HOST_OOM.value}
    return f"no configuration {'fits' if failed <= memory else 'has succeeded in'} {budget} so far"


def winner_text(chosen: Chosen, budget_bytes: int) -> str:
    """The winner's point and figures, one to a line."""
    result = chosen.measured
    low, high = result.tokens_per_second_low, result.tokens_per_second_high
    interval = f", 95 % interval {low:,.0f} to {high:,.0f}" if low is not None and high is not None else ""
    needs = f"{size_words(memory_of(result))} of {format_size(budget_bytes)}"
    held = result.device_bytes
    if held is not None and held > (memory_of(result) or held):
        needs += f" (held {format_size(held)} with room to spare)"
    return fields(
        [
            ("winner", point_words(chosen.record.point)),
            ("speed", speed_words(result.tokens_per_second) + interval),
            ("memory", needs),
            ("host memory", "" if result.host_peak_bytes is None else format_size(result.host_peak_bytes)),
            (
                "confirmed",
                "in a longer run of its own"
                if chosen.confirmation
                else "not yet: run the same command again",
            ),
        ]
    )


def how_sure(findings: Findings) -> str:
    """How sure the search is of its winner; empty where nobody knows."""
    from autotune.tuning.certainty import is_guess

    remaining = findings.remaining
    if remaining is None:
        return ""
    measured = findings.counts[Outcome.OK] + findings.counts[Outcome.STOPPED]
    if is_guess(remaining, measured):
        what = f"{measured} measured, {remaining.points:,} not"
        return f"too few trials to say ({what}): the same command with more --trials goes on"
    return certainty_words(remaining)


def certainty_words(remaining: Remaining) -> str:
    """`0.4 % expected to be left to gain; 5 % chance that one of 812 unmeasured is over 1 % faster`."""
    if not remaining.points:
        return "every point that fits is measured"
    one = "the one" if remaining.points == 1 else f"one of {remaining.points:,}"
    points = f"{one} unmeasured {'point' if remaining.points == 1 else 'points'}"
    margin = f"over {100 * remaining.margin:g} % " if remaining.margin else ""
    beaten = f"{chance_words(remaining.beaten)} chance that {points} is {margin}faster"
    return f"{gain_words(remaining.share)} expected to be left to gain; {beaten}"


def gain_words(share: float) -> str:
    """`0.4 %`; of what is guessed from too little, that it is much."""
    return f"{100 * share:.1f} %" if share <= 1.0 else "more than 100 %"


def ties_words(findings: Findings) -> str:
    """`trial 4 (mb 8 x ga 4, zero 0) and 2 more: the clock cannot tell them from the winner`."""
    if not findings.ties:
        return ""
    named = [f"trial {one.position} ({point_words(one.point)})" for one in findings.ties[:SHOWN_TIES]]
    more = len(findings.ties) - len(named)
    text = ", ".join(named) + (f" and {more} more" if more else "")
    return f"{text}: the clock cannot tell {'it' if len(findings.ties) == 1 else 'them'} from the winner"


def noise_words(findings: Findings) -> str:
    """`trial 3 (mb 8 x ga 4, full): its interval overlaps the winner's, but more than 10 % ...`."""
    if not findings.noisy:
        return ""
    one = findings.noisy[0]
    more = f" and {len(findings.noisy) - 1} more" if len(findings.noisy) > 1 else ""
    return (
        f"the interval of trial {one.position} ({point_words(one.point)}){more} overlaps the winner's; "
        f"no tie, for more than {MOST_FOR_NOISE} is never given up for noise"
    )


def prices_text(prices: Sequence[Price]) -> str:
    """The best throughput for each value of the knobs that change what is learned."""
    rows = [
        [
            price.knob,
            str(price.value),
            speed_words(price.tokens_per_second),
            f"{price.share:.0%}",
            size_words(price.required_device_bytes),
            point_words(price.point),
        ]
        for price in prices
    ]
    return table(["knob", "value", "best", "share", "needs", "point"], rows, right=(2, 3, 4))


def counts_text(findings: Findings) -> str:
    """`12: 9 ok, 3 oom`."""
    seen = ", ".join(f"{count} {outcome}" for outcome, count in findings.counts.items() if count)
    skipped = f"; {findings.skipped} never launched, predicted not to fit" if findings.skipped else ""
    return f"{findings.total}{': ' + seen if seen else ''}{skipped}"


def shortfall_words(result: RunResult) -> tuple[str, str]:
    """What is wrong and what to do, where nothing fits."""
    from autotune.tuning.limits import limits_words
    from autotune.tuning.shortfall import PredictedShortfall

    shortfall, counts = result.shortfall, counts_text(result.findings)
    limits = shortfall.limits if shortfall else ()
    host_budget_bytes = shortfall.host_budget_bytes if shortfall else None
    budget = limits_words(limits, result.findings.budget_bytes, host_budget_bytes)
    message = f"nothing fits {budget}; trials: {counts}"
    if shortfall is None:
        return message, ""
    point = point_words(shortfall.point)
    if isinstance(shortfall, PredictedShortfall):
        return message, _predicted_words(shortfall, point)
    if shortfall.untried and shortfall.fits(result.findings.budget_bytes):
        message = f"no trial fitted {budget}; trials: {counts}"
        return (
            message,
            f"the smallest point would fit: run it again with more --trials or --timeout ({point})",
        )
    if not shortfall.ran:
        outcome = shortfall.result.outcome.value
        return message, f"the smallest point ended in {outcome} even without the limit: {point}"
    needs = []
    if "device" in limits and shortfall.needed_bytes is not None:
        needs.append(format_size(shortfall.needed_bytes))
    if "host" in limits and shortfall.host_bytes is not None:
        needs.append(f"{format_size(shortfall.host_bytes)} of host memory")
    return message, f"the smallest point needs {' and '.join(needs)}: {point}"


def _predicted_words(shortfall: PredictedShortfall, point: str) -> str:
    """What comes closest, and what would fit."""
    others = [
        f"--method {method} would fit in {format_size(size)}"
        for method, size in shortfall.other_methods.items()
    ]
    closest = f"the nearest, {point}, {shortfall.why}"
    return f"{closest}; {' and '.join(others)}" if others else closest
