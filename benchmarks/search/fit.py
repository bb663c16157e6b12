"""`python -m benchmarks.search.fit`: fits the coefficients' prior means on all measurements: priors.json.

Sources: the tables of this benchmark, and the single configurations of the memory benchmark, each timed over
a step or two. Every observation counts by Student's t, for some were disturbed; a table counts as much as
twenty configurations however long it is, for its points are alike.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import autotune.throughput
from autotune.throughput import H200_RATES, Training, Worked
from autotune.throughput.coefficients import COEFFICIENTS, Prior, Vector, hand_prior
from benchmarks.memory.measure import OUTPUT
from benchmarks.memory.rows import SHARED_ROWS, own_rows, shared_rows
from benchmarks.search.table import Table, read_tables
from trials.wire import Point

PRIORS = Path(autotune.throughput.__file__).parent / "priors.json"
NOISE = {"cuda": 0.2, "cpu": 0.2}
STUDENT_FREEDOM = 4.0
TABLE_COUNTS_AS = 20.0
_ITERATIONS = 60


@dataclass(frozen=True)
class Timed:
    """Measured steps of one training.

    Attributes:
        training: what was trained, on what.
        points: configurations.
        step_seconds: of each.
        weight: of each of them in the fit.
    """

    training: Training
    points: tuple[Point, ...]
    step_seconds: Vector
    weight: float = 1.0


def fit_prior(sources: Iterable[Timed], device: str) -> Prior:
    """The prior that measurements of a kind of device give."""
    chosen = [source for source in sources if source.training.rates.device == device]
    prior = hand_prior()
    worked = [Worked(source.training, source.points) for source in chosen]
    if not worked:
        return prior
    seconds = np.log(np.concatenate([source.step_seconds for source in chosen]))
    weights = np.concatenate([np.full(len(source.points), source.weight) for source in chosen])
    found, noise = prior.mean.copy(), NOISE[device]
    precision = np.diag(prior.spread**-2)
    for _ in range(_ITERATIONS):
        times = [one.times(found) for one in worked]
        rest = seconds - np.concatenate([one.log_seconds for one in times])
        slopes = np.concatenate([one.slopes for one in times])
        counts = weights * (STUDENT_FREEDOM + 1) / (STUDENT_FREEDOM + (rest / noise) ** 2) / noise**2
        curve = slopes.T @ (slopes * counts[:, None]) + precision
        step = np.linalg.solve(curve, slopes.T @ (counts * rest) - precision @ (found - prior.mean))
        found = found + np.clip(step, -0.3, 0.3)
    return Prior(found, prior.spread)


def all_sources(*, without: Table | None = None) -> list[Timed]:
    """Every measurement there is, but for a table and whatever else was measured of its model and method."""
    found = [_of_table(table) for table in read_tables() if without is None or not _are_alike(table, without)]
    return [*found, *_single(without)]


def _of_table(table: Table) -> Timed:
    measured = table.measured
    points = tuple(measured)
    tokens = [p.micro_batch_size * p.gradient_accumulation_steps * table.inputs["seq_len"] for p in points]
    seconds = np.array(tokens) / np.array([measured[point] for point in points])
    return Timed(table.training, points, seconds, min(1.0, TABLE_COUNTS_AS / max(1, len(points))))


def _single(without: Table | None) -> Iterable[Timed]:
    rates = H200_RATES
    seconds = [
        min(json.loads(line)["measured"]["step_seconds"][1:]) for line in SHARED_ROWS.read_text().splitlines()
    ]
    for row, step in zip(shared_rows(), seconds, strict=True):
        # Those in fp32 ran without TF32.
        if row.point.precision != "fp32" and not _is_of(without, row.model.name, row.point):
            yield Timed(Training(row.model, row.seq_len, rates), (row.point,), np.array([step]))
    for row in own_rows(OUTPUT):
        speed = row.measured["tokens_per_second"]
        if row.outcome != "ok" or not speed or _is_of(without, row.model.name, row.point):
            continue
        point = row.point
        tokens = point.micro_batch_size * point.gradient_accumulation_steps * row.seq_len
        yield Timed(Training(row.model, row.seq_len, rates), (point,), np.array([tokens / speed]))


def _are_alike(table: Table, other: Table) -> bool:
    same_model = table.inputs["model"]["name"] == other.inputs["model"]["name"]
    return table.name == other.name or (same_model and table.inputs["method"] == other.inputs["method"])


def _is_of(table: Table | None, model: str, point: Point) -> bool:
    if table is None or table.inputs["model"]["name"] != model:
        return False
    return table.inputs["method"] in ("any", point.method)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.fit", description=__doc__)
    parser.add_argument("--output", type=Path, default=PRIORS)
    output = parser.parse_args(arguments).output
    sources = all_sources()
    means = {}
    for device in ("cuda", "cpu"):
        prior = fit_prior(sources, device)
        means[device] = {
            one.name: round(float(mean), 3) for one, mean in zip(COEFFICIENTS, prior.mean, strict=True)
        }
        print(device, {name: round(float(np.exp(mean)), 2) for name, mean in means[device].items()})
    output.write_text(json.dumps({"log_coefficients": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
