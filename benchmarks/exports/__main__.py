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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.export import EXPORTERS, chosen_exporters, export_folder, loss_words
from benchmarks.exports.materials import make_documents, make_model
from benchmarks.exports.starting import STARTS, Job, job, run_forked, run_whole
from benchmarks.exports.winners import MODEL, POINTS, WINNERS, expected, winner

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

Each trainer's first winner is started by the whole command, the others as forks of a process that has
loaded the trainer, at the entry point that the command's launcher runs. For the CPU a group that asks for
nccl is one of gloo (axolotl), bf16 is let pass without a GPU where no use_cpu can be said (axolotl), and
torchaudio's libraries of CUDA are left out (LLaMA-Factory). With `--work` and `--trainer` it can be done a
trainer at a time; the rows are kept.
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
    parser.add_argument("--work", type=Path, help="kept, with its rows; by default a temporary folder")
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
    rows, jobs = [], []
    for trainer in arguments.trainer or EXPORTERS:
        for name in arguments.winner or WINNERS[trainer]:
            made = exported(name, trainer, work, places)
            rows.append(made) if isinstance(made, Checked) else jobs.append(made)
    for ended in run_all(jobs, environments, places):
        rows.append(checked(ended))
        print(f"{ended.winner} | {ended.trainer}: {rows[-1].verdict}", flush=True)
    rows = merged(work / "rows.json", rows)
    if len(rows) == sum(map(len, WINNERS.values())):
        arguments.output.write_text(report(rows, versions(environments)), encoding="utf-8")
    if arguments.work is None:
        shutil.rmtree(work)
    return 0 if all(row.good for row in rows) else 1


def merged(path: Path, rows: list[Checked]) -> list[Checked]:
    """These rows and those that earlier calls left in a work folder that is kept; the table is of all."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    known = {
        (row["winner"], row["trainer"]): Checked(**{**row, "lost": tuple(row["lost"])}) for row in earlier
    }
    known |= {(row.winner, row.trainer): row for row in rows}
    path.write_text(json.dumps([asdict(row) for row in known.values()], indent=1), encoding="utf-8")
    return list(known.values())


def exported(name: str, trainer: str, work: Path, places: dict[str, str]) -> Job | Checked:
    """One winner's folder for one trainer, ready to start; or why there is none."""
    one = winner(name)
    folder = work / f"{name} {trainer}".replace(",", "").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        exporters = chosen_exporters([trainer], one.point)
    except UsageError as error:
        return Checked(name, trainer, f"refused: {error.message.partition(': ')[2]}")
    export_folder(one, folder, exporters)
    return job(name, trainer, one, folder, places)


def run_all(jobs: list[Job], environments: Path, places: dict[str, str]) -> Iterator[Job]:
    """Each trainer's first winner by its whole command, the others as forks."""
    first = {one.trainer: one for one in reversed(jobs)}
    for one in first.values():
        yield run_whole(one, environments)
    for environment in dict.fromkeys(STARTS[one.trainer].environment for one in jobs):
        rest = [
            one
            for one in jobs
            if one is not first[one.trainer] and STARTS[one.trainer].environment == environment
        ]
        yield from run_forked(rest, environments, places)


def checked(ended: Job) -> Checked:
    """What the live objects said, beside the winner."""
    one = winner(ended.winner)
    lost = loss_words(ended.trainer, one)
    if not ended.report.exists():
        printed = ended.log.read_text(encoding="utf-8").strip().splitlines()
        verdict = f"did not train (exit {ended.code}): {printed[-1]}"
        return Checked(ended.winner, ended.trainer, verdict, lost, False)
    found = json.loads(ended.report.read_text(encoding="utf-8"))
    wrong = differences(expected(one, ended.trainer), found)
    if ended.code != 0:
        wrong.append(f"exit {ended.code} after the second step")
    return Checked(ended.winner, ended.trainer, "; ".join(wrong) or right(lost, found), lost, not wrong)


def right(lost: tuple[str, ...], found: dict[str, Any]) -> str:
    """How what is right is called."""
    if lost:
        return "as the file says"
    return (
        "as measured, but use_reentrant: true, as the file says"
        if found.get("use_reentrant")
        else "as measured"
    )


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
    for row in sorted(
        rows, key=lambda row: (list(EXPORTERS).index(row.trainer), list(POINTS).index(row.winner))
    ):
        lost = "; ".join(words.partition(" is lost")[0] for words in row.lost)
        lines.append(f"| {row.winner} | {row.trainer} | {row.verdict} | {lost} |")
    lines += ["", "## Versions", "", f"Python {sys.version.split()[0]}.", ""]
    for name, packages in installed.items():
        told = ", ".join(f"{package} {packages[package]}" for package in PACKAGES if package in packages)
        lines.append(f"- {name}: {told}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
