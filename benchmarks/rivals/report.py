"""The rows as a page of Markdown: one table a case."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from autotune.sizes import format_size
from benchmarks.json_rows import Row
from benchmarks.rivals.rows import measurements_of

NAMES = {
    "autotune": "`autotune run`",
    "autotune-same-kernels": "`autotune run`, no Liger",
    "deepspeed-autotuner": "DeepSpeed's autotuner",
    "hf-auto-find": "Trainer, `auto_find_batch_size`",
    "usual-recipe": "usual recipe",
    "table": "exhaustive table",
}
_HEADER = (
    "| contender | winner | tokens/s, measured alike | interval | of the best | its own figure "
    "| minutes | tried | out of memory | ended |"
)


def report(rows: Sequence[Row], command: str) -> str:
    """The page.

    Args:
        rows: of the output.
        command: what made them.
    """
    machines = [row for row in rows if row["kind"] == "machine"]
    found = [row for row in rows if row["kind"] == "found"]
    lines = ["# `autotune run` against what people use instead", "", f"Made by `{command}`.", ""]
    lines += _machine_lines(machines)
    for case, setting in _conditions(found):
        of_case = [row for row in found if row["case"] == case and row["setting"] == setting]
        lines += _section(case, setting, of_case, rows)
    lines += [
        '"Measured alike" is a trial of ours at the winner\'s micro batch, stage, checkpointed share and',
        "buckets, its accumulation the one nearest to the global batch: the median of several, all winners",
        "in turns, from the slowest to the fastest (how many); of one measurement its 95 % interval.",
        "Minutes run from the contender's start to its result, or to its limit where it was cut; what it had",
        "found by then counts. What is alike for all and what cannot be: `benchmarks/rivals/__init__.py`.",
    ]
    return "\n".join(lines) + "\n"


def _conditions(found: Sequence[Row]) -> list[tuple[str, Row]]:
    conditions: list[tuple[str, Row]] = []
    for row in found:
        if (row["case"], row["setting"]) not in conditions:
            conditions.append((row["case"], row["setting"]))
    return conditions


def _machine_lines(machines: Sequence[Row]) -> list[str]:
    lines = []
    for text in dict.fromkeys(_machine_words(row) for row in machines):
        lines += [text, ""]
    prepared = max((row["prepare_seconds"] for row in machines), default=None)
    if prepared is not None:
        lines += [
            f"Once per machine and charged to nobody: {prepared:.0f} s for compiling DeepSpeed's operators",
            "and measuring the share outside the allocator and the machine's rates.",
            "",
        ]
    return lines


def _machine_words(row: Row) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(row["versions"].items()))
    driver = f" (driver {row['driver']})" if row["driver"] else ""
    return f"{row['gpu'] or 'CPU'}{driver}; {versions}. Limit: {row['limit_seconds']:.0f} s a contender."


def _section(case: str, setting: Row, found: Sequence[Row], rows: Sequence[Row]) -> list[str]:
    model, _, method = case.rpartition(":")
    measured = {row["contender"]: _speed(row, rows) for row in found}
    best = max((speed for speed in measured.values() if speed), default=None)
    words = "full fine-tuning" if method == "full" else "LoRA"
    lines = [
        f"## {model}, {words}, {format_size(setting['budget_bytes'])}",
        "",
        f"Sequences of {setting['seq_len']:,} tokens, a global batch of {setting['global_batch']}.",
        "",
        _HEADER,
        "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    order = list(NAMES)
    for row in sorted(found, key=lambda row: order.index(row["contender"])):
        lines.append(_line(row, rows, measured[row["contender"]], best))
    missing = [name for name in NAMES if name not in measured and name != "autotune-same-kernels"]
    lines += [f"| {NAMES[name]} | | | | | | | | | not run |" for name in missing]
    notes = [f"- {NAMES[row['contender']]}: {row['note']}." for row in found if row["note"]]
    return [*lines, "", *notes, *([""] if notes else [])]


def _line(row: Row, rows: Sequence[Row], speed: float | None, best: float | None) -> str:
    own = row["own_tokens_per_second"]
    cells = [
        NAMES[row["contender"]],
        _point_words(row["point"]) if row["point"] else "none",
        f"{speed:,.0f}" if speed else _unmeasured_words(row, rows),
        _interval_words(row, rows),
        f"{speed / best:.1%}" if speed and best else "",
        f"{own:,.0f}" if own else "",
        f"{row['wall_seconds'] / 60:.1f}" if row["wall_seconds"] else "",
        str(row["tried"]),
        str(row["ooms"]),
        row["status"],
    ]
    return f"| {' | '.join(cells)} |"


def _speed(row: Row, rows: Sequence[Row]) -> float | None:
    """The median of the winner's measurements; None where one of them did not end well, or there is none."""
    speeds = [result["tokens_per_second"] for result in _results(row, rows)]
    return median(speeds) if speeds and all(speeds) else None


def _unmeasured_words(row: Row, rows: Sequence[Row]) -> str:
    return next((result["outcome"] for result in _results(row, rows) if not result["tokens_per_second"]), "")


def _interval_words(row: Row, rows: Sequence[Row]) -> str:
    """From the slowest to the fastest of several measurements; of one, its own interval."""
    found = _results(row, rows)
    if _speed(row, rows) is None:
        return ""
    if len(found) == 1:
        ends = found[0]["tokens_per_second_low"], found[0]["tokens_per_second_high"]
        return f"{ends[0]:,.0f} to {ends[1]:,.0f}" if all(ends) else ""
    speeds = [result["tokens_per_second"] for result in found]
    return f"{min(speeds):,.0f} to {max(speeds):,.0f} ({len(speeds)})"


def _results(row: Row, rows: Sequence[Row]) -> list[Row]:
    return [one["result"] for one in measurements_of(rows, row["case"], row["setting"], row["point"])]


def _point_words(point: dict[str, Any]) -> str:
    words = [f"mb {point['micro_batch_size']} x ga {point['gradient_accumulation_steps']}"]
    words += [f"ZeRO-{point['zero_stage']}", f"ckpt {point['checkpoint_fraction']:g}"]
    words += [f"offload {point['offload']}"] if point["offload"] != "none" else []
    words += ["Liger"] if point["liger_kernel"] else []
    return ", ".join(words)
