"""Sentences of the report that depend on several figures: its title, and what each figure shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from autotune.display.words import memory_of, point_words, size_words, speed_words
from autotune.sizes import format_size
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.study import Record


def headline(evidence: Evidence) -> str:
    """The answer in one line."""
    budget = format_size(evidence.budget_bytes)
    if evidence.chosen is not None:
        result = evidence.chosen.measured
        words = f"{speed_words(result.tokens_per_second)} in {size_words(memory_of(result))} of {budget}"
        # A number stays with its unit.
        return re.sub(r"(?<=\d) (?=[A-Za-z])", "\u00a0", words)
    if not evidence.records:
        return "No trial yet"
    outcomes = {record.result.outcome for record in evidence.records if record.result}
    if outcomes == {Outcome.HOST_OOM}:
        return "Nothing that was tried fits the host budget"
    if outcomes <= {Outcome.OOM, Outcome.HOST_OOM}:
        return f"Nothing that was tried fits {budget}"
    if not outcomes & {Outcome.OK, Outcome.STOPPED, Outcome.OOM, Outcome.HOST_OOM}:
        return "Every trial so far failed"
    return f"No configuration trains in {budget} so far"


def counts_words(evidence: Evidence) -> str:
    """`8 trials: 5 ok, 3 stopped`."""
    total = sum(evidence.counts.values())
    seen = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in evidence.counts.items() if count)
    return f"{total} {'trial' if total == 1 else 'trials'}" + (f": {seen}" if seen else "")


def nearest_failure(evidence: Evidence) -> Record | None:
    """The out-of-memory that was short of least; None where no trial says by how much."""
    short = [r for r in evidence.records if r.result and r.result.oom_short_bytes is not None]
    return min(short, key=lambda record: (record.result and record.result.oom_short_bytes) or 0, default=None)


def tradeoff_words(evidence: Evidence) -> str:
    """What the figure of throughput against memory shows, for those who do not see it."""
    ran = len([r for r in evidence.records if r.result and r.result.tokens_per_second is not None])
    text = f"Throughput against memory: {ran} of {counts_words(evidence)} have a speed."
    if evidence.chosen is not None:
        result = evidence.chosen.measured
        text += (
            f" The winner, {point_words(evidence.chosen.record.point)}, does "
            f"{speed_words(result.tokens_per_second)} in {size_words(memory_of(result))}."
        )
    return f"{text} The budget is {format_size(evidence.budget_bytes)}."


def history_words(evidence: Evidence) -> str:
    """What the figure of the search's history shows."""
    failed = sum(evidence.counts[name] for name in (Outcome.OOM.value, Outcome.HOST_OOM.value))
    text = f"The search in order, {counts_words(evidence)}; {failed} ran out of memory."
    if evidence.chosen is not None:
        text += f" The winner was trial {evidence.chosen.record.position}."
    return text
