"""`python -m benchmarks.exports`: trainers train two steps with the exported files, and that is read back.

Run by `make check-exports`, which makes the environments. Writes benchmarks/results/exports.md.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.export import EXPORTERS, chosen_exporters, export_folder, loss_words
from benchmarks.exports.materials import make_documents, make_model
from benchmarks.exports.starting import STARTS, run
from benchmarks.exports.winners import MODEL, POINTS, expected, winner

RESULTS = Path(__file__).resolve().parent.parent / "results" / "exports.md"
PACKAGES = (
    *("transformers", "accelerate", "peft", "trl", "llamafactory", "axolotl", "ms-swift"),
    *("deepspeed", "bitsandbytes", "torch"),
)

INTRODUCTION = f"""\
`make check-exports`: each winner, on {MODEL} with random weights, is exported; each trainer is started on
the files as their header says, on the CPU, with the user's part filled in (model, data, two steps). After
the second optimizer step the live DeepSpeed engine and the model are read: micro batch, accumulation,
clipping, precision, ZeRO stage, offload, bucket size; rank, alpha, targets and dropout of the adapters;
quantization; the checkpointed layers and their reentrancy; the kind of the optimizer's state; attention;
the precision of what is trained; the shape of the batches. `as measured`: all of it is the winner's.
"""


@dataclass(frozen=True)
class Checked:
    """One winner in one trainer.

    Attributes:
        winner: its name.
        trainer: the exporter's name.
        verdict: `as measured`, `nothing to export`, or what is otherwise.
        lost: what the export says it loses.
        good: whether everything is as it must be.
    """

    winner: str
    trainer: str
    verdict: str
    lost: tuple[str, ...] = ()
    good: bool = True


def main() -> int:
    """Export, start, read back, compare, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description=__doc__)
    parser.add_argument("--environments", type=Path, default=Path(".venvs-exports"))
    parser.add_argument("--work", type=Path, help="kept; by default a temporary folder")
    parser.add_argument("--trainer", action="append", choices=list(EXPORTERS))
    parser.add_argument("--winner", action="append", choices=list(POINTS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="autotune-exports-"))
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    environments = arguments.environments.resolve()
    places = {"model": str(work / "model"), "text": str(work / "text"), "chat": str(work / "chat")}
    make_model(work / "model", MODEL)
    make_documents(work)
    rows = []
    for name in arguments.winner or POINTS:
        for trainer in arguments.trainer or EXPORTERS:
            rows.append(check(name, trainer, work, environments, places))
            print(f"{name} | {trainer}: {rows[-1].verdict}", flush=True)
    if not arguments.trainer and not arguments.winner:
        arguments.output.write_text(report(rows, versions(environments)), encoding="utf-8")
    if arguments.work is None:
        shutil.rmtree(work)
    return 0 if all(row.good for row in rows) else 1


def check(name: str, trainer: str, work: Path, environments: Path, places: dict[str, str]) -> Checked:
    """One winner in one trainer."""
    one = winner(name)
    folder = work / f"{name} {trainer}".replace(",", "").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        exporters = chosen_exporters([trainer], one.point)
    except UsageError as error:
        return Checked(name, trainer, f"nothing to export: {error.message.partition(': ')[2]}")
    export_folder(one, folder, exporters)
    lost = loss_words(trainer, one)
    ended = run(trainer, one, folder, environments, places)
    if ended.report is None:
        reason = ended.output.strip().splitlines()[-1:] or ["nothing printed"]
        return Checked(name, trainer, f"did not train (exit {ended.code}): {reason[0]}", lost, False)
    found = json.loads(ended.report.read_text(encoding="utf-8"))
    wrong = differences(expected(one, trainer), found)
    if ended.code != 0:
        wrong.append(f"exit {ended.code} after the second step")
    return Checked(name, trainer, "; ".join(wrong) or "as measured", lost, not wrong)


def differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What the live objects say otherwise than the winner."""
    wrong = [
        f"{key} is {found.get(key)}, not {value}" for key, value in wanted.items() if found.get(key) != value
    ]
    if not found["losses"] or not all(math.isfinite(loss) for loss in found["losses"]):
        wrong.append("a loss is not finite")
    return wrong


def versions(environments: Path) -> dict[str, dict[str, str]]:
    """The packages of each environment that matter here."""
    code = (
        "import json, sys; from importlib.metadata import distributions; names = sys.argv[1:]; "
        "print(json.dumps({d.name.lower().replace('_', '-'): d.version for d in distributions() "
        "if d.name.lower().replace('_', '-') in names}))"
    )
    found = {}
    for name in sorted({start.environment for start in STARTS.values()}):
        python = environments / name / "bin" / "python"
        printed = subprocess.run(
            [str(python), "-c", code, *PACKAGES], capture_output=True, text=True, check=True
        )
        found[name] = json.loads(printed.stdout)
    return found


def report(rows: list[Checked], installed: dict[str, dict[str, str]]) -> str:
    """The results as Markdown."""
    lines = [
        "# The exported files in the trainers themselves",
        "",
        INTRODUCTION,
        "| winner | trainer | read back | the export says it loses |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows:
        lost = "; ".join(words.partition(" is lost")[0] for words in row.lost)
        lines.append(f"| {row.winner} | {row.trainer} | {row.verdict} | {lost} |")
    lines += ["", "## Versions", "", f"Python {sys.version.split()[0]}.", ""]
    for name, packages in installed.items():
        told = ", ".join(f"{package} {packages[package]}" for package in PACKAGES if package in packages)
        lines.append(f"- {name}: {told}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
