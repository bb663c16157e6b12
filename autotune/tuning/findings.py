"""What a study found, as plain values: the same for `run --json`, `best --json` and the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import ExitCode
from autotune.tuning.certainty import kept_remaining
from autotune.tuning.confirm import Chosen, best_so_far, effective_records
from autotune.tuning.confirmations import failed_points
from autotune.tuning.session import SKIPPED_NOTE, measured_records
from autotune.tuning.shortfall import PredictedShortfall, Shortfall
from autotune.winner import Price, overlapping, price_list, tied_with
from trials.wire import Outcome, TrialResult

if TYPE_CHECKING:
    from autotune.study import Record, Study
    from autotune.throughput import Remaining

_MEASURED = (
    "tokens_per_second",
    "tokens_per_second_low",
    "tokens_per_second_high",
    "device_bytes",
    "required_device_bytes",
    "required_verified",
    "peak_allocated_bytes",
    "setup_peak_allocated_bytes",
    "peak_reserved_bytes",
    "outside_allocator_bytes",
    "host_peak_bytes",
    "setup_seconds",
    "trainable_parameters",
    "total_parameters",
)


@dataclass(frozen=True)
class Findings:
    """A study's state and best.

    Attributes:
        study: its name.
        chosen: the winner; None where nothing fits so far.
        prices: what each value of the quality knobs would cost.
        counts: trials by outcome, every outcome named; the confirmation is not among them.
        skipped: points never launched because they were predicted not to fit.
        budget_bytes: device memory for one process.
        ties: other trials that the clock cannot tell from the winner, fastest first.
        remaining: what was expected to be left to gain when the search ended; None where nobody knows.
        gpus: processes of a trial, one per GPU.
        noisy: trials whose interval overlaps the winner's, too far apart to be ties; fastest first.
    """

    study: str
    chosen: Chosen | None
    prices: tuple[Price, ...]
    counts: dict[str, int]
    skipped: int
    budget_bytes: int
    ties: tuple[Record, ...] = ()
    remaining: Remaining | None = None
    gpus: int = 1
    noisy: tuple[Record, ...] = ()

    @property
    def total(self) -> int:
        """Trials of all outcomes."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class RunResult:
    """How one call of `autotune run` ended.

    Attributes:
        findings: the study now.
        wall_seconds: of this call.
        export_dir: the winner's folder; None where there is no winner.
        shortfall: what the smallest point needs, where nothing fits.
        interrupted: whether the user stopped it.
        reuse: which studies it learned from, and what is left of the trust in them.
        trainers: files in the folder that trainers read, by the trainer's title.
    """

    findings: Findings
    wall_seconds: float
    export_dir: Path | None
    shortfall: Shortfall | PredictedShortfall | None
    interrupted: bool
    reuse: Mapping[str, Any] = field(default_factory=dict)
    trainers: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        """0 a winner, 1 nothing fits, 130 interrupted."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.WINNER if self.findings.chosen else ExitCode.NOTHING_FITS

    def as_json(self) -> dict[str, Any]:
        """The object that `autotune run --json` prints."""
        answer = findings_json(self.findings) | {
            "wall_seconds": round(self.wall_seconds, 3),
            "export_dir": str(self.export_dir) if self.export_dir else None,
            "interrupted": self.interrupted,
            **self.reuse,
        }
        if self.shortfall is not None:
            answer["smallest_needed_bytes"] = self.shortfall.needed_bytes
            answer["smallest_needed_host_bytes"] = self.shortfall.host_bytes
            answer["smallest_point"] = self.shortfall.point.model_dump(mode="json")
        if isinstance(self.shortfall, Shortfall):
            answer["limit"] = self.shortfall.limits[0]
        if isinstance(self.shortfall, PredictedShortfall):
            answer["limit"] = self.shortfall.limit
            answer["other_methods"] = dict(self.shortfall.other_methods)
        return answer


def findings_of(study: Study) -> Findings:
    """What the study found so far; nothing is run."""
    records = measured_records(study)
    inputs, chosen = study.inputs, best_so_far(study)
    effective = effective_records(study)
    winner = next((one for one in effective if chosen and one.number == chosen.record.number), None)
    failed = failed_points(study)
    able = [record for record in effective if record.point not in failed]
    prices = price_list(
        effective,
        exclude=failed,
        seq_len=inputs.seq_len if inputs.global_batch is None else None,
        gpus=inputs.gpus,
        budget_bytes=inputs.budget_bytes,
    )
    return Findings(
        study=study.name,
        chosen=chosen,
        prices=prices,
        counts=outcome_counts(records),
        skipped=int(study.note(SKIPPED_NOTE) or 0),
        budget_bytes=inputs.budget_bytes,
        ties=tuple(tied_with(winner, able, budget_bytes=inputs.budget_bytes)) if winner else (),
        remaining=kept_remaining(study),
        gpus=inputs.gpus,
        noisy=tuple(overlapping(winner, able, budget_bytes=inputs.budget_bytes)) if winner else (),
    )


def outcome_counts(records: Iterable[Record]) -> dict[str, int]:
    """Trials by outcome, those that did not happen as 0."""
    seen = Counter(record.result.outcome.value for record in records if record.result is not None)
    return {outcome.value: seen.get(outcome.value, 0) for outcome in Outcome}


def findings_json(findings: Findings) -> dict[str, Any]:
    """The findings as plain JSON values."""
    return {
        "study": findings.study,
        "winner": winner_json(findings.chosen) if findings.chosen else None,
        "trials": findings.counts,
        "skipped": findings.skipped,
        "budget_bytes": findings.budget_bytes,
        "price_list": [price_json(price) for price in findings.prices],
        "ties": [tie_json(record) for record in findings.ties],
        "certainty": certainty_json(findings.remaining) if findings.remaining else None,
    }


def tie_json(record: Record) -> dict[str, Any]:
    """A configuration that is as fast as the winner, as far as the clock can tell."""
    assert record.result is not None
    return {
        "trial": record.position,
        "point": record.point.model_dump(mode="json"),
        **{name: getattr(record.result, name) for name in _MEASURED[:3]},
    }


def certainty_json(remaining: Remaining) -> dict[str, Any]:
    """How sure the search is of its winner."""
    return {
        "expected_gain_left": remaining.share,
        "probability_beaten": remaining.beaten,
        "margin": remaining.margin,
        "unmeasured_points": remaining.points,
    }


def winner_json(chosen: Chosen) -> dict[str, Any]:
    """The winner's point and figures."""
    return {
        "trial": chosen.record.position,
        "method": chosen.record.point.method,
        "point": chosen.record.point.model_dump(mode="json"),
        "confirmed": chosen.confirmation is not None,
        **figures_json(chosen.measured),
    }


def figures_json(result: TrialResult) -> dict[str, Any]:
    """What was measured of one trial, as plain JSON values. Sizes in bytes."""
    return {name: getattr(result, name) for name in _MEASURED}


def price_json(price: Price) -> dict[str, Any]:
    """One line of the price list."""
    return {
        "knob": price.knob,
        "value": price.value,
        "tokens_per_second": price.tokens_per_second,
        "share": price.share,
        "required_device_bytes": price.required_device_bytes,
        "point": price.point.model_dump(mode="json"),
    }
