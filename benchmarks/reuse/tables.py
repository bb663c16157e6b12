"""Recorded tables as trainings that can be searched; their form is that of `benchmarks/search/table.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.reuse import Profile, profile_of
from autotune.study import Record, StudyInputs
from autotune.study.measured_on import MeasuredOn
from autotune.throughput import Training
from autotune.throughput.coefficients import Prior
from autotune.tuning.task import model_digest
from benchmarks.search import table as search
from benchmarks.search.fit import all_sources, fit_prior
from trials.wire import ModelSpec, Point, TrialResult

FOLDERS = (search.FOLDER,)


@dataclass(frozen=True)
class Table:
    """What trials of one training reported, under a budget.

    Attributes:
        name: of its file.
        inputs: the first line.
        budget_bytes: device memory; None: as it was recorded.
        results: by point, of everything that was recorded.
        training: what is trained, on what.
        prior: of the model of speed, fitted without this model and method.
    """

    name: str
    inputs: Mapping[str, Any]
    budget_bytes: int | None
    results: Mapping[Point, TrialResult]
    training: Training
    prior: Prior

    @property
    def model(self) -> ModelSpec:
        """What is trained."""
        return ModelSpec.model_validate(self.inputs["model"])

    @property
    def points(self) -> list[Point]:
        """What would be launched under the budget: what is known to need more is not."""
        return [point for point in self.results if (self.required_bytes(point) or 0) <= self.limit_bytes]

    @property
    def limit_bytes(self) -> int:
        """The budget, or the most that any point needs."""
        most = max((result.required_device_bytes or 0 for result in self.results.values()), default=0)
        return self.budget_bytes or max(most, 1)

    @property
    def profile(self) -> Profile:
        """As reuse sees it."""
        gpu = self.inputs["gpu"]
        on_gpu = gpu != "cpu"
        inputs = StudyInputs(
            model=self.model.name,
            model_digest=model_digest(self.model),
            method=self.inputs["method"],
            seq_len=self.inputs["seq_len"],
            global_batch=self.inputs["global_batch"],
            budget_bytes=self.limit_bytes,
            device="cuda" if on_gpu else "cpu",
            gpu_name=gpu if on_gpu else None,
            space_name="table",
            space_digest="",
        )
        rates = self.inputs.get("rates") or {}
        machine = MeasuredOn(gpu_name=inputs.gpu_name, versions=self.inputs["versions"], rates=rates)
        return profile_of(inputs, self.model, machine)

    def required_bytes(self, point: Point) -> int | None:
        """Device memory that a point needs; None where it was not recorded."""
        return self.results[point].required_device_bytes

    def known(self, point: Point) -> TrialResult:
        """What a trial of a point reports."""
        return self.results[point]

    def is_best(self, point: Point) -> bool:
        """Whether a point is the fastest under the budget, or the clock cannot tell it from that one."""
        ran = [self.results[one] for one in self.points if self.results[one].tokens_per_second]
        fastest = max(ran, key=lambda result: result.tokens_per_second or 0.0)
        return search.are_tied(self.results[point], fastest)

    def under(self, budget_bytes: int) -> Table:
        """The same training under another budget."""
        return replace(self, budget_bytes=budget_bytes, name=f"{self.name} in {budget_bytes / 2**30:.3g} GiB")

    def reversed(self) -> Table:
        """A training that prefers whatever this one dislikes: the fastest point is the slowest."""
        speeds = [result.tokens_per_second or 0.0 for result in self.results.values()]
        span = max(speeds) * min(speed for speed in speeds if speed > 0)

        def turned(result: TrialResult) -> TrialResult:
            if not result.tokens_per_second:
                return result
            speed = span / result.tokens_per_second
            return result.model_copy(update={"tokens_per_second": speed})

        results = {point: turned(result) for point, result in self.results.items()}
        return replace(self, name=f"{self.name} reversed", results=results)


def read_table(path: Path) -> Table:
    """The table of a file."""
    recorded = search.read_table(path)
    return Table(
        name=recorded.name,
        inputs=recorded.inputs,
        budget_bytes=recorded.inputs.get("budget_bytes"),
        results={point: row.result("") for point, row in recorded.rows.items()},
        training=recorded.training,
        prior=fit_prior(all_sources(without=recorded), recorded.rates.device),
    )


def read_tables(folders: Iterable[Path] = FOLDERS) -> list[Table]:
    """The tables of some folders, by name."""
    return [read_table(path) for folder in folders for path in sorted(folder.glob("*.jsonl"))]


def table_lines(inputs: StudyInputs, model: ModelSpec, records: Iterable[Record]) -> list[str]:
    """A study's trials as the lines of a table."""
    kept = [record for record in records if record.result is not None]
    results = [record.result for record in kept if record.result is not None]
    versions = next((result.versions for result in results if result.versions), {})
    header = {
        "model": model.model_dump(mode="json"),
        "seq_len": inputs.seq_len,
        "method": inputs.method,
        "gpu": inputs.gpu_name or inputs.device,
        "budget_bytes": inputs.budget_bytes,
        "global_batch": inputs.global_batch,
        "versions": versions,
        "rates": {},
    }
    rows = [
        {
            "point": record.point.model_dump(mode="json"),
            "outcome": result.outcome.value,
            "tokens_per_second": result.tokens_per_second,
            "low": result.tokens_per_second_low,
            "high": result.tokens_per_second_high,
            "setup_seconds": result.setup_seconds,
            "measure_seconds": sum(result.step_seconds),
            "required_device_bytes": result.required_device_bytes,
            "predicted": record.predicted,
        }
        for record, result in zip(kept, results, strict=True)
    ]
    return [json.dumps(row) for row in (header, *rows)]
