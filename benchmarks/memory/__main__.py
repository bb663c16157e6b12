"""`python -m benchmarks.memory`: predicts every measured configuration and prints and writes the errors."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from autotune.prediction.cache import default_cache_folder
from benchmarks.memory.compare import Comparison, compare, others_table, table
from benchmarks.memory.rows import HERE, own_rows, shared_rows

RESULTS = HERE.parent / "results" / "memory.md"
OWN_ROWS = HERE / "h200_own.jsonl"


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="tracing processes")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--only", help="rows whose label holds this text")
    arguments = parser.parse_args()
    rows = [*shared_rows(), *own_rows(OWN_ROWS)]
    if arguments.only:
        rows = [row for row in rows if arguments.only in row.label]
    begun = time.perf_counter()
    comparisons = []
    for comparison in compare(rows, default_cache_folder(), arguments.workers):
        comparisons.append(comparison)
        error = comparison.errors.get("peak_allocated_bytes", float("nan"))
        reserved = comparison.errors.get("peak_reserved_bytes", float("nan"))
        allocator = "" if comparison.row.expandable_segments else "  (default allocator)"
        line = f"{error:+10.4%} {reserved:+9.3%}  {comparison.row.label}{allocator}"
        print(line, flush=True)
    text = report(comparisons, time.perf_counter() - begun)
    print(text)
    if not arguments.only:
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(text)


def report(comparisons: list[Comparison], seconds: float) -> str:
    """The results as Markdown."""
    own = sum(1 for comparison in comparisons if comparison.row.own_loader)
    lines = [
        "# Predicted against measured memory",
        "",
        f"`make bench-memory`: {len(comparisons)} configurations measured on an H200, {own} by trials of",
        f"ours, the others shared (see `benchmarks/memory/rows.py`). It took {seconds:.0f} s.",
        "Errors are |predicted / measured - 1|.",
        "",
        "| figure | rows | median | p90 | p95 | largest |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {figure} | {count} | {middle:.4%} | {p90:.4%} | {p95:.4%} | {largest:.4%} |"
        for figure, count, middle, p90, p95, largest in table(comparisons)
    ]
    lines += ["", "Peak allocated memory, by what others offer for it:", ""]
    lines += [
        "| estimator | rows | median | p90 | p95 | largest |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {name} | {count} | {middle:.4%} | {p90:.4%} | {p95:.4%} | {largest:.4%} |"
        for name, count, middle, p90, p95, largest in others_table(comparisons)
    ]
    told = [comparison.told_right for comparison in comparisons if comparison.told_right is not None]
    if told:
        lines += [
            "",
            f"Of {len(told)} runs under a cap within 10 % of their need, {sum(told)} were told right.",
        ]
    lines += ["", "The largest errors of peak allocated memory:", ""]
    worst = sorted(comparisons, key=lambda c: -abs(c.errors.get("peak_allocated_bytes", 0.0)))[:5]
    lines += [f"- {c.errors.get('peak_allocated_bytes', 0.0):+.4%} {c.row.label}" for c in worst]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
