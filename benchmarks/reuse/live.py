"""`python -m benchmarks.reuse.live`: real searches, each learning from those before it, and each alone.

    python -m benchmarks.reuse.live --output reuse.jsonl qwen2.5-0.5b qwen2.5-1.5b qwen2.5-1.5b:40GB
    python -m benchmarks.reuse.live --output reuse.jsonl --report benchmarks/results/reuse_h200.md

Each is `autotune run` on the shipped space of the method, ended by itself. With reuse the searches share
a storage and learn from each other (`--reuse own`: nothing that is shipped); without, each has its own. The
first of those with reuse has nothing to learn from, so it stands for the one without, too. Of each search
both ways run one after the other, for a host's speed moves; either way keeps traces of its own, so that
neither finds the other's predictions made. What the output holds is not run again; a search that the time
limit cut has a row that says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.display.words import point_words
from autotune.running.ops import operators_folder
from benchmarks.json_rows import append_row, read_rows
from benchmarks.rivals.contender import Found
from benchmarks.rivals.ours import found_by_autotune
from benchmarks.rivals.processes import run_limited

WAYS = ("off", "own")


@dataclass(frozen=True)
class Search:
    """One search of the chain.

    Attributes:
        model: a card.
        budget: as typed.
    """

    model: str
    budget: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is left, or write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reuse.live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("searches", nargs="*", help="MODEL or MODEL:BUDGET, in their order")
    parser.add_argument("--output", type=Path, required=True, help="rows are appended to it")
    parser.add_argument("--report", type=Path, help="write the rows as this page; nothing is run")
    parser.add_argument("--way", action="append", choices=WAYS, help="by default both")
    parser.add_argument("--method", default="lora")
    parser.add_argument("--budget", default="24GB", help="of searches that name none")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, help="for the storages; by default a temporary one")
    parser.add_argument("--seconds", type=float, default=500.0, help="for all searches together")
    chosen = parser.parse_args(arguments)
    if chosen.report is not None:
        chosen.report.write_text(page(read_rows(chosen.output)))
        return
    with tempfile.TemporaryDirectory(prefix="reuse-") as scratch:
        _run_all(chosen, chosen.folder or Path(scratch))


def _run_all(chosen: argparse.Namespace, folder: Path) -> None:
    until = time.monotonic() + chosen.seconds
    searches, rows = [_search(text, chosen.budget) for text in chosen.searches], read_rows(chosen.output)
    ways = [way for way in WAYS if way in (chosen.way or WAYS)]
    for number, search in enumerate(searches):
        # The first with reuse learns from nothing: one stands for both.
        for way in ways if number else ways[-1:]:
            about = {
                "number": number,
                "model": search.model,
                "budget": search.budget,
                "method": chosen.method,
                "seq_len": chosen.seq_len,
                "global_batch": chosen.global_batch,
                "device": chosen.device,
                "reuse": way,
            }
            if any(row["about"] == about for row in rows):
                continue
            left = until - time.monotonic()
            if left <= 0:
                print(f"time is up before {search.model} in {search.budget} with --reuse {way}", flush=True)
                return
            storage = folder / (f"{way}.db" if way != "off" else f"{way}-{number}.db")
            row = {
                "about": about,
                "found": _run(about, storage, folder / f"{way}-{number}", folder / way, left),
            }
            append_row(chosen.output, rows, row)
            print(line(row), flush=True)
            if not number:
                for other in ways[:-1]:
                    # Whoever begins the second search knows the same traces.
                    shutil.copytree(folder / way, folder / other, symlinks=True, dirs_exist_ok=True)


def _search(text: str, budget: str) -> Search:
    model, _, own = text.partition(":")
    return Search(model, own or budget)


def _run(
    about: dict[str, Any], storage: Path, folder: Path, cache: Path, limit_seconds: float
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    cache.mkdir(exist_ok=True)
    # What was compiled for DeepSpeed is the machine's, wherever traces are kept.
    compiled = cache / "torch_extensions"
    if not compiled.is_symlink():
        operators_folder().mkdir(parents=True, exist_ok=True)
        compiled.symlink_to(operators_folder().absolute())
    command = [sys.executable, "-m", "autotune", "run", "--json", "--reuse", about["reuse"]]
    command += ["--model", about["model"], "--method", about["method"], "--gpu-budget", about["budget"]]
    command += ["--seq-len", str(about["seq_len"]), "--global-batch", str(about["global_batch"])]
    command += ["--device", about["device"], "--storage", f"sqlite:///{storage.absolute()}"]
    command += ["--export-dir", str(folder / "winner")]
    ended = run_limited(
        command,
        folder=folder,
        environment={**os.environ, "XDG_CACHE_HOME": str(cache)},
        limit_seconds=limit_seconds,
    )
    return found_by_autotune(ended).model_dump(mode="json")


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown, each search with reuse under the one without."""
    lines = [
        "# Searches with a head start and without",
        "",
        "`python -m benchmarks.reuse.live`: one search after another on the same machine; `own` learns from",
        "those above it with `own` (the first of them from nothing), `off` from nothing. Trials: all but the",
        "confirmations; minutes are the whole command.",
        "",
        "| model | budget | --reuse | trials | OOM | minutes | winner | tokens/s | |",
        "| --- | ---: | --- | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    ordered = sorted(rows, key=lambda row: (row["about"]["number"], WAYS.index(row["about"]["reuse"])))
    return "\n".join([*lines, *map(line, ordered)]) + "\n"


def line(row: dict[str, Any]) -> str:
    """One search as a row of the table."""
    about, found = row["about"], Found.model_validate(row["found"])
    begins = f"| {about['model']} | {about['budget']} | {about['reuse']} "
    words = point_words(found.point) if found.point else "none"
    speed = f"{found.own_tokens_per_second:,.0f}" if found.own_tokens_per_second else ""
    remark = "; ".join(filter(None, (found.status if found.status != "finished" else "", found.note)))
    return (
        f"{begins}| {found.tried} | {found.ooms} | {found.wall_seconds / 60:.1f} | {words} | {speed} "
        f"| {remark} |"
    )


if __name__ == "__main__":
    main()
