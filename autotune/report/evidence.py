"""What a report is made of: a study, read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from autotune.export.escaping import one_command
from autotune.study import Record, StudyInputs, redact
from autotune.study.judging import holds
from autotune.study.storage_url import secrets_of
from autotune.tuning.confirm import effective_records
from autotune.tuning.confirmations import failed_points
from autotune.tuning.findings import findings_of
from autotune.tuning.handover import MODEL_NOTE, TRIALS_NOTE, command_of
from autotune.tuning.session import measured_records
from autotune.winner.ranking import ranking
from trials.wire import ModelSpec, Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Study
    from autotune.throughput import Remaining
    from autotune.tuning.confirm import Chosen
    from autotune.winner import Price

SPEEDS = ("tokens_per_second", "tokens_per_second_low", "tokens_per_second_high")


@dataclass(frozen=True)
class Evidence:
    """A study at the moment of its report.

    Attributes:
        name: the study's.
        inputs: what it is about.
        records: its trials that are over and count, by number.
        effective: the same, each with its longer run's result where it has a good one.
        ranked: those of them that could win, fastest first.
        failed: points that did not hold in a longer run.
        confirmations: the longer runs, oldest first.
        chosen: the winner; None where there is none.
        ties: points that the clock cannot tell from the winner.
        remaining: what the search believed was left to gain when it ended; None where it does not say.
        prices: the price list.
        counts: trials by outcome, every outcome named.
        skipped: points never launched because they were predicted not to fit.
        running: trials that some process runs now.
        planned: how many trials were asked for; None where that is not known.
        model: None where the study does not hold it.
        command: reproduces the study.
        export_command: writes the winner's folder.
        show_command: shows the study; with a number after it one trial.
        noisy: trials whose interval overlaps the winner's without their counting as equally fast.
    """

    name: str
    inputs: StudyInputs
    records: tuple[Record, ...]
    effective: tuple[Record, ...]
    ranked: tuple[Record, ...]
    failed: frozenset[Point]
    confirmations: tuple[Record, ...]
    chosen: Chosen | None
    ties: frozenset[Point]
    remaining: Remaining | None
    prices: tuple[Price, ...]
    counts: dict[str, int]
    skipped: int
    running: int
    planned: int | None
    model: ModelSpec | None
    command: str
    export_command: str
    show_command: str
    noisy: tuple[Record, ...] = ()

    @property
    def budget_bytes(self) -> int:
        """Device memory of one process."""
        return self.inputs.budget_bytes

    @property
    def failed_confirmations(self) -> tuple[Record, ...]:
        """The longer runs that did not hold."""
        return tuple(r for r in self.confirmations if r.result and not holds(r.result, self.budget_bytes))

    @property
    def last_finished(self) -> datetime | None:
        """When the last measurement ended; None where there is none."""
        ends = [r.finished_at for r in (*self.records, *self.confirmations) if r.finished_at]
        return max(ends, default=None)

    @property
    def witness(self) -> TrialResult | None:
        """The result that knows machine and versions: the winner's, else the last that names any."""
        if self.chosen is not None:
            return self.chosen.measured
        named = [r.result for r in self.records if r.result and (r.result.versions or r.result.gpu)]
        return named[-1] if named else None


def gather(study: Study, storage_url: str) -> Evidence:
    """Read a study for its report.

    Args:
        study: where all of it is.
        storage_url: where it is kept; its secrets are taken out of every text that came from a trial.
    """
    findings = findings_of(study)
    secrets = secrets_of(storage_url)
    note: Any = study.note(MODEL_NOTE)
    effective = tuple(_without(record, secrets) for record in effective_records(study))
    failed = failed_points(study)
    return Evidence(
        name=study.name,
        inputs=study.inputs,
        records=tuple(_without(record, secrets) for record in measured_records(study)),
        effective=effective,
        ranked=tuple(ranking(effective, exclude=failed, budget_bytes=study.inputs.budget_bytes)),
        failed=failed,
        confirmations=tuple(_without(record, secrets) for record in study.confirmations()),
        chosen=findings.chosen,
        ties=frozenset(record.point for record in findings.ties),
        remaining=findings.remaining,
        prices=findings.prices,
        counts=findings.counts,
        skipped=findings.skipped,
        running=sum(record.result is None for record in study.records()),
        planned=study.note(TRIALS_NOTE),
        model=ModelSpec.model_validate(note) if note is not None else None,
        command=_safe_command(study, storage_url, secrets),
        export_command=study.command("export"),
        show_command=study.command("show"),
        noisy=findings.noisy,
    )


def _safe_command(study: Study, storage_url: str, secrets: Sequence[str]) -> str:
    command = one_command(command_of(study))
    command = command.replace(storage_url, redact(storage_url))
    return " ".join(redact_word(_cut(word, secrets)) for word in command.split(" "))


def redact_word(word: str) -> str:
    """A word of a command without the password of a URL in it; a flag and `=` may come before it."""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    bare = word[len(quote) :]
    flag, equals, value = bare.partition("=")
    if flag.startswith("--") and equals:
        return quote + flag + equals + redact_word(value)
    return quote + redact(bare)


def _without(record: Record, secrets: Sequence[str]) -> Record:
    """The record without secrets in its message, and without speeds that are no numbers."""
    if record.result is None:
        return record
    speeds = {name: getattr(record.result, name) for name in SPEEDS}
    numbers = {name: None for name, speed in speeds.items() if speed is not None and not isfinite(speed)}
    message = _cut(record.result.message, secrets)
    return replace(record, result=record.result.model_copy(update={"message": message, **numbers}))


def _cut(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
