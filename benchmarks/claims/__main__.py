"""`python -m benchmarks.claims`: checks memory claims that people repeat, and writes docs/claims.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from autotune.models import resolve_model
from autotune.planning.outlook import Budgets, broken_limit
from autotune.prediction import Prediction, Predictor
from autotune.sizes import format_size
from benchmarks.claims.cases import GIB, Case, Claim, claims
from benchmarks.claims.measure import OUTPUT, row_of
from benchmarks.json_rows import read_rows
from benchmarks.search.table import read_tables

PAGE = Path(__file__).parent.parent.parent / "docs" / "claims.md"
# With fewer their spread is not told.
LEAST_PAIRS = 10


def main() -> None:
    """Predict every case and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--measured", type=Path, default=OUTPUT, help="rows of `benchmarks.claims.measure`")
    arguments = parser.parse_args()
    measured = read_rows(arguments.measured)
    lines = [
        "# Claims that people repeat, checked",
        "",
        "Made by `python -m benchmarks.claims`. Peak allocated, what a card needs (with an H200's share",
        'outside the allocator) and host memory are predicted. "Measured" is a run on H200s under a cap of',
        "the budget, by `python -m benchmarks.claims.measure`: its peak allocated, host memory and speed.",
        "Speeds are of several machines and not to be compared with each other; where it says nothing, the",
        "case was not run.",
        "",
    ]
    with Predictor(workers=1) as predictor:
        for claim in claims():
            lines += _section(claim, predictor, measured)
            print("\n".join(lines[-(len(claim.cases) + 6) :]), flush=True)
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text("\n".join(lines))


def _section(claim: Claim, predictor: Predictor, measured: list[dict[str, Any]]) -> list[str]:
    predictions = [
        predictor.predict(resolve_model(case.model), case.seq_len, case.point, processes=case.gpus)
        for case in claim.cases
    ]
    rows = [
        f"| {case.model} | {_words(case)} | {case.budget_gib} GiB "
        f"| {format_size(found.peak_allocated_bytes)} | {format_size(found.required_device_bytes)} "
        f"| {format_size(found.host_peak_bytes)} "
        f"| {'yes' if _fits(case, found) else 'no'} | {_measured_words(row_of(case, measured))} |"
        for case, found in zip(claim.cases, predictions, strict=True)
    ]
    header = "| model | configuration | budget | peak allocated | needs | host memory | fits | measured |"
    return [
        f"## {claim.text}",
        "",
        f"**{_verdict(claim.cases, predictions)}**{_time_words(claim)}",
        "",
        header,
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |",
        *rows,
        "",
    ]


def _measured_words(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    result = row["result"]
    if result["outcome"] != "ok":
        return f"{result['outcome']} in {result['phase'].replace('_', ' ')} under {row['budget_gib']} GiB"
    words = [f"ran under {row['budget_gib']} GiB: peak {format_size(result['peak_allocated_bytes'])}"]
    words += [f"host {format_size(result['host_peak_bytes'])}"]
    words += [f"{result['tokens_per_second']:,.0f} tokens/s"]
    return ", ".join(words)


def _time_words(claim: Claim) -> str:
    """What recomputation costs, where that is the claim: recorded pairs that differ in nothing else."""
    if [case.point.checkpoint_fraction for case in claim.cases] != [0.0, 1.0]:
        return ""
    costs = sorted(
        speed / table.measured[recomputed] - 1
        for table in read_tables()
        for point, speed in table.measured.items()
        if point.checkpoint_fraction == 0.0
        and (recomputed := point.model_copy(update={"checkpoint_fraction": 1.0})) in table.measured
    )
    if len(costs) < LEAST_PAIRS:
        return ""
    # The hosts' speed moved while tables were recorded: single pairs say little.
    low, middle, high = (quantiles(costs, n=10)[tenth] for tenth in (0, 4, 8))
    where = f"{len(costs)} pairs in `benchmarks/search/tables`"
    return (
        f" It costs {middle:.0%} more time in the median, {low:.0%} to {high:.0%} in the middle eight tenths,"
        f" least where the GPU and not the host sets the pace ({where})."
    )


def _fits(case: Case, prediction: Prediction) -> bool:
    return broken_limit(prediction, Budgets(case.budget_gib * GIB)) is None


def _verdict(cases: Sequence[Case], predictions: Sequence[Prediction]) -> str:
    """True, false, or true when: what the cases say together."""
    if len(cases) == 2 and len({case.budget_gib for case in cases}) == 1 and cases[0].budget_gib == 80:
        first, second = (prediction.peak_allocated_bytes for prediction in predictions)
        saved = first - second
        if cases[0].point.zero_stage != cases[1].point.zero_stage:
            states = [prediction.breakdown.get("optimizer state", 0) for prediction in predictions]
            state = (
                "the state is whole on one GPU" if states[0] <= states[1] * 1.01 else "the state is smaller"
            )
            word = "False" if states[0] <= states[1] * 1.01 else "True"
            step = f"; other step buffers take the peak from {format_size(first)} to {format_size(second)}"
            return f"{word}: {state}{step if saved > 0.01 * first else ''}."
        kept, left = (_activations(prediction) for prediction in predictions)
        share = 1 - left / kept
        word = "True" if 0.6 <= share <= 0.8 else "True when other parts dominate; here"
        return f"{word}: {share:.0%} of what depends on the batch is saved at the peak."
    fits = [_fits(case, prediction) for case, prediction in zip(cases, predictions, strict=True)]
    hosts = max(prediction.host_peak_bytes for prediction in predictions)
    needs_host = f", given {format_size(hosts)} of host memory" if hosts > 16 * GIB else ""
    if all(fits):
        return f"True{needs_host}."
    return f"True when: see which rows fit{needs_host}." if any(fits) else "False."


def _activations(prediction: Prediction) -> int:
    parts = ("activations", "logits")
    return sum(size for name, size in prediction.breakdown.items() if name.startswith(parts))


def _words(case: Case) -> str:
    point = case.point
    words = [point.method, f"micro batch {point.micro_batch_size}", f"{case.seq_len:,} tokens"]
    words += [f"rank {point.lora_rank}"] if point.lora_rank else []
    words += [f"ZeRO-{point.zero_stage}"] if point.zero_stage else []
    words += [f"offload {point.offload}"] if point.offload != "none" else []
    words += [point.optimizer] if point.optimizer != "adamw" else []
    words += [f"checkpointing {point.checkpoint_fraction:g}"] if point.checkpoint_fraction else []
    words += [f"{case.gpus} GPUs"] if case.gpus > 1 else []
    return ", ".join(words)


if __name__ == "__main__":
    main()
