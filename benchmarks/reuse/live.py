"""`python -m benchmarks.reuse.live`: real searches, each learning from those before it, and each alone.

    python -m benchmarks.reuse.live --output reuse.jsonl qwen2.5-0.5b qwen2.5-1.5b qwen2.5-1.5b:40GB
    python -m benchmarks.reuse.live --output reuse.jsonl --report benchmarks/results/reuse_h200.md

Each is `autotune run` on the shipped space of the method, ended by itself. With reuse the searches share
a storage and learn from each other (`--reuse own`: nothing that is shipped); without, each has its own. What
the output holds is not run again; a search that the time limit cut has a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.display.words import point_words
from benchmarks.rivals.processes import run_limited
from trials.wire import Point

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
    searches = [_search(text, chosen.budget) for text in chosen.searches]
    for way in chosen.way or WAYS:
        for number, search in enumerate(searches):
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
            if any(row["about"] == about for row in read_rows(chosen.output)):
                continue
            left = until - time.monotonic()
            if left <= 0:
                print(f"time is up before {search.model} in {search.budget} with --reuse {way}", flush=True)
                return
            storage = folder / (f"{way}.db" if way != "off" else f"{way}-{number}.db")
            row = {"about": about, **_run(about, storage, folder / f"{way}-{number}", left)}
            with chosen.output.open("a") as output:
                output.write(json.dumps(row) + "\n")
            print(line(row), flush=True)


def _search(text: str, budget: str) -> Search:
    model, _, own = text.partition(":")
    return Search(model, own or budget)


def _run(about: dict[str, Any], storage: Path, folder: Path, limit_seconds: float) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "autotune", "run", "--json", "--reuse", about["reuse"]]
    command += ["--model", about["model"], "--method", about["method"], "--gpu-budget", about["budget"]]
    command += ["--seq-len", str(about["seq_len"]), "--global-batch", str(about["global_batch"])]
    command += ["--device", about["device"], "--storage", f"sqlite:///{storage.absolute()}"]
    command += ["--export-dir", str(folder / "winner")]
    ended = run_limited(command, folder=folder, environment=os.environ, limit_seconds=limit_seconds)
    try:
        answer = json.loads(ended.stdout.read_text())
    except json.JSONDecodeError:
        return {"failed": ended.last_words(), "wall_seconds": ended.wall_seconds}
    winner = answer["winner"] or {}
    return {
        "cut": ended.cut,
        "wall_seconds": ended.wall_seconds,
        "trials": answer["trials"],
        "point": winner.get("point"),
        "tokens_per_second": winner.get("tokens_per_second"),
        "confirmed": winner.get("confirmed"),
        "learned": answer.get("reuse"),
    }


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What was run."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines() if text.strip()]


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown, each search with reuse under the one without."""
    lines = [
        "# Searches with a head start and without",
        "",
        "`python -m benchmarks.reuse.live`: one search after another on the same machine; `own` learns from",
        "those above it with `own`, `off` from nothing. Trials: all but the confirmations;",
        "minutes are the whole command.",
        "",
        "| model | budget | --reuse | trials | OOM | minutes | winner | tokens/s | confirmed |",
        "| --- | ---: | --- | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    ordered = sorted(rows, key=lambda row: (row["about"]["number"], WAYS.index(row["about"]["reuse"])))
    return "\n".join([*lines, *map(line, ordered)]) + "\n"


def line(row: dict[str, Any]) -> str:
    """One search as a row of the table."""
    about = row["about"]
    minutes = f"{row['wall_seconds'] / 60:.1f}"
    begins = f"| {about['model']} | {about['budget']} | {about['reuse']} "
    if "failed" in row:
        return f"{begins}| | | {minutes} | {row['failed']} | | |"
    counts = row["trials"]
    words = point_words(Point.model_validate(row["point"])) if row["point"] else "none"
    speed = f"{row['tokens_per_second']:,.0f}" if row["tokens_per_second"] else ""
    confirmed = "cut" if row["cut"] else ("yes" if row["confirmed"] else "no")
    return (
        f"{begins}| {sum(counts.values())} | {counts['oom']} | {minutes} | {words} | {speed} | {confirmed} |"
    )


if __name__ == "__main__":
    main()
