"""What to do where nothing was found that trains: it follows from how the trials ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.display.words import end_words
from trials.wire import Outcome

if TYPE_CHECKING:
    from autotune.report.evidence import Evidence
    from autotune.study import Record

# Endings that say something of the configuration or of the machine, but not of the device's memory.
FAULTS = (Outcome.CRASH, Outcome.NAN, Outcome.TIMEOUT, Outcome.INVALID)
REMEDIES = {
    Outcome.HOST_OOM: "It was the host's memory that ran out: a larger --host-budget, or configurations "
    "without offload, need no larger GPU.",
    Outcome.TIMEOUT: "A trial that timed out may need only more time: --trial-timeout.",
    Outcome.NAN: "A loss that is not a number may be fp16's range, or what the weights are: bf16 or fp32, or "
    "--load-weights, may mend it.",
    Outcome.INVALID: "A configuration that was refused cannot be run as it is, whatever the memory.",
}
LESS_MEMORY = (
    "'autotune plan' says what would fit; a larger --gpu-budget, a shorter --seq-len or --method qlora "
    "need less."
)


@dataclass(frozen=True)
class Advice:
    """What to do next.

    Attributes:
        sentences: in the order in which they matter.
        failed: the last trial that failed for another reason than memory; None where there is none.
        ended: how it ended, in words.
        command: shows that trial's error and log; empty where there is none.
    """

    sentences: tuple[str, ...]
    failed: Record | None = None
    ended: str = ""
    command: str = ""


def advice_of(evidence: Evidence) -> Advice:
    """What to do where a study has trials and no winner."""
    results = [record.result for record in evidence.records if record.result is not None]
    seen = {result.outcome for result in results}
    sentences = [words for outcome, words in REMEDIES.items() if outcome in seen]
    # A trial that ended well and is no winner needs more than the budget.
    if seen & {Outcome.OOM, Outcome.OK, Outcome.STOPPED} or evidence.skipped:
        sentences.append(LESS_MEMORY)
    faults = [record for record in evidence.records if record.result and record.result.outcome in FAULTS]
    if not faults:
        return Advice(tuple(sentences))
    last = faults[-1]
    assert last.result is not None
    ended = f"{last.result.outcome.value.replace('_', ' ')} {end_words(last.result)}".strip()
    return Advice(tuple(sentences), last, ended, f"{evidence.show_command} {last.position}")
