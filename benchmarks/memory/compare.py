"""Errors of predictions against measured rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autotune.prediction.cache import TraceCache
from autotune.prediction.hardware import Hardware, outside_allocator_bytes
from autotune.prediction.host import host_peak_bytes
from autotune.prediction.pool import WorkerPool
from autotune.prediction.replay import replay, smallest_cap
from autotune.prediction.traces import Traces
from benchmarks.memory.others import others
from benchmarks.memory.rows import Row

# A budget this close to the need is a test of whether a prediction tells fitting from not fitting.
NEAR_SHARE = 0.10


@dataclass
class Comparison:
    """One row's relative errors by figure, predicted over measured less one.

    `told_right` says of a row that ran under a cap whether the prediction knew how it would end; `others`
    holds the errors of other estimators' peaks.
    """

    row: Row
    errors: dict[str, float] = field(default_factory=dict)
    told_right: bool | None = None
    others: dict[str, float] = field(default_factory=dict)


def compare(rows: Iterable[Row], cache_folder: Path, workers: int) -> Iterator[Comparison]:
    """Predict every row as it was measured, and compare."""
    hardware = Hardware()
    pool = WorkerPool(1, workers)
    cache = TraceCache(cache_folder)
    try:
        for row in rows:
            yield _compared(row, hardware, cache, pool)
    finally:
        pool.close()


def _compared(row: Row, hardware: Hardware, cache: TraceCache, pool: WorkerPool) -> Comparison:
    traces = Traces(
        row.model,
        row.seq_len,
        row.lora_targets,
        1,
        hardware,
        cache,
        1.0,
        pool,
        load_whole=not row.own_loader,
    )
    events = traces.exact(row.point)
    emptied = () if row.own_loader else ("step 0", "phase start")
    if row.point.quantization == "none" and emptied:
        emptied = ("step 0",)
    if row.own_loader:
        # A trial that is not confirmed neither evaluates nor saves.
        events = events.training
    replayed = replay(events, expandable_segments=row.expandable_segments, empty_cache_at=emptied)
    steps = replayed.step_peaks
    setup = max(replayed.phase_peaks["load"], replayed.phase_peaks["start"])
    reserved = replayed.peak_reserved_bytes if row.own_loader else replayed.step_peak_reserved_bytes
    predicted = {
        "peak_allocated_bytes": max(steps),
        "first_step_peak_allocated_bytes": steps[0],
        "setup_peak_allocated_bytes": setup,
        "peak_reserved_bytes": reserved,
        "device_bytes": reserved + outside_allocator_bytes(hardware, row.point),
    }
    if row.point.offload != "none":
        predicted["host_peak_bytes"] = host_peak_bytes(events, row.point)
    result = Comparison(row)
    if row.budget_bytes is not None:
        outside = row.measured["outside_allocator_bytes"] or outside_allocator_bytes(hardware, row.point)
        required = smallest_cap(events, replayed.peak_reserved_bytes) + outside
        if abs(row.budget_bytes / required - 1) <= NEAR_SHARE:
            result.told_right = (required <= row.budget_bytes) == (row.outcome == "ok")
    if row.outcome != "ok":
        return result
    estimates = others(
        row, total_parameters=events.total_parameters, trainable_parameters=events.trainable_parameters
    )
    peak = row.measured["peak_allocated_bytes"]
    result.others = {name: value / peak - 1 for name, value in estimates.items()}
    for name, value in predicted.items():
        if row.budget_bytes is not None and name in ("peak_reserved_bytes", "device_bytes"):
            # Under a cap the allocator reserves less than it would.
            continue
        measured = row.measured.get(name)
        if measured:
            result.errors[name] = value / measured - 1
    return result


def table(comparisons: list[Comparison]) -> list[tuple[str, int, float, float, float, float]]:
    """(figure, rows, median, p90, p95, largest) of the absolute errors, as shares."""
    groups: dict[str, list[float]] = {}
    for comparison in comparisons:
        for name, error in comparison.errors.items():
            figure = name.removesuffix("_bytes").replace("_", " ")
            if name in ("peak_allocated_bytes", "peak_reserved_bytes"):
                kind = "expandable segments" if comparison.row.expandable_segments else "default allocator"
                figure = f"{figure}, {kind}"
            groups.setdefault(figure, []).append(abs(error))
    return _spread(groups)


def others_table(comparisons: list[Comparison]) -> list[tuple[str, int, float, float, float, float]]:
    """The same of other estimators' peaks, and of ours on the same rows."""
    groups: dict[str, list[float]] = {}
    for comparison in comparisons:
        if not comparison.others:
            continue
        groups.setdefault("autotune", []).append(abs(comparison.errors["peak_allocated_bytes"]))
        for name, error in comparison.others.items():
            groups.setdefault(name, []).append(abs(error))
    return _spread(groups)


def _spread(groups: dict[str, list[float]]) -> list[tuple[str, int, float, float, float, float]]:
    lines = []
    for figure, errors in sorted(groups.items()):
        values = np.asarray(errors)
        middle, p90, p95 = np.percentile(values, (50, 90, 95))
        lines.append((figure, len(errors), float(middle), float(p90), float(p95), float(values.max())))
    return lines
