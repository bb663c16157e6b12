"""A table: a space whose points were measured, as JSON lines.

The first line holds the inputs: `model` (name and configuration), `seq_len`, `method`, `gpu`, `budget_bytes`,
`global_batch`, `versions`, `rates` (what the machine's probe measured; may be empty) and a `note`. Each other
line is a point: `point`, `outcome` (`ok`, `oom`, ...), `tokens_per_second`, `low`, `high`, `setup_seconds`,
`measure_seconds`, `required_device_bytes` (measured, else predicted), `predicted` (the same before) and
`build` (`fresh`, or `reused`: measured on an engine that lived). A point's later line has its speed, measured
longer; what a trial of it costs stands in the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune.throughput import CPU_RATES, Rates, Training, probed_rates, rates_of
from autotune.winner.choice import same_speed
from trials.wire import ModelSpec, Outcome, Phase, Point, TrialResult

FOLDER = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Row:
    """One point of a table.

    Attributes:
        point: the configuration.
        outcome: how its trial ended.
        tokens_per_second: where it was measured.
        low: lower end of its interval.
        high: upper end.
        setup_seconds: of building its engine; None where it was measured on one that lived.
        measure_seconds: its steps.
        required_device_bytes: what it needs, measured or else predicted.
        predicted: the device memory that was predicted, in bytes.
    """

    point: Point
    outcome: Outcome
    tokens_per_second: float | None = None
    low: float | None = None
    high: float | None = None
    setup_seconds: float | None = None
    measure_seconds: float | None = None
    required_device_bytes: int | None = None
    predicted: int | None = None

    def result(self, trial_id: str) -> TrialResult:
        """The row as its trial reported it."""
        return TrialResult(
            trial_id=trial_id,
            outcome=self.outcome,
            phase=Phase.LATER_STEP if self.tokens_per_second else Phase.BACKWARD,
            tokens_per_second=self.tokens_per_second,
            tokens_per_second_low=self.low,
            tokens_per_second_high=self.high,
            setup_seconds=self.setup_seconds,
            required_device_bytes=self.required_device_bytes,
        )


@dataclass(frozen=True)
class Table:
    """A space with its measurements.

    Attributes:
        name: of its file.
        inputs: its first line.
        rows: by point.
    """

    name: str
    inputs: Mapping[str, Any]
    rows: Mapping[Point, Row] = field(default_factory=dict)

    @property
    def model(self) -> ModelSpec:
        """What is trained."""
        return ModelSpec.model_validate(self.inputs["model"])

    @property
    def rates(self) -> Rates:
        """The machine's: those of its GPU, and what the probe measured."""
        gpu = self.inputs["gpu"]
        return probed_rates(self.inputs.get("rates") or {}, CPU_RATES if gpu == "cpu" else rates_of(gpu))

    @property
    def training(self) -> Training:
        """What is trained, on what."""
        return Training(self.model, self.inputs["seq_len"], self.rates)

    @cached_property
    def setup_seconds(self) -> dict[tuple[object, ...], float]:
        """The time that building took, by build, where it was measured."""
        known: dict[tuple[object, ...], float] = {}
        for point, row in self.rows.items():
            if row.setup_seconds:
                known[point.build] = max(row.setup_seconds, known.get(point.build, 0.0))
        return known

    @property
    def measured(self) -> dict[Point, float]:
        """Tokens per second of the points that were measured and ran."""
        return {
            point: row.tokens_per_second
            for point, row in self.rows.items()
            if row.outcome is Outcome.OK and row.tokens_per_second
        }


@dataclass(frozen=True)
class _Measured:
    """A result as winners are chosen among."""

    point: Point
    result: TrialResult


def are_tied(one: TrialResult, best: TrialResult) -> bool:
    """Whether the clock cannot tell a point's speed from the best one's, by the rule of `autotune run`.

    Args:
        one: of a point; whatever did not run is no tie.
        best: of the fastest point.
    """
    # The points do not matter to that.
    return bool(one.tokens_per_second) and same_speed(_Measured(Point(), one), _Measured(Point(), best))


def read_table(path: Path) -> Table:
    """The table of a file."""
    first, *lines = [line for line in path.read_text().splitlines() if line.strip()]
    rows: dict[Point, Row] = {}
    for row in (_row(json.loads(line)) for line in lines):
        earlier = rows.get(row.point, row)
        costs = {"setup_seconds": earlier.setup_seconds, "measure_seconds": earlier.measure_seconds}
        rows[row.point] = replace(row, **costs)
    return Table(path.stem, json.loads(first), rows)


def read_tables(folder: Path = FOLDER) -> Iterator[Table]:
    """The tables of a folder, by name."""
    for path in sorted(folder.glob("*.jsonl")):
        yield read_table(path)


def _row(values: dict[str, Any]) -> Row:
    return Row(
        point=Point.model_validate(values["point"]),
        outcome=Outcome(values["outcome"]),
        **{name: values.get(name) for name in Row.__dataclass_fields__ if name not in ("point", "outcome")},
    )
