"""`python -m benchmarks.reuse.ship FILE ...`: exported studies as the package ships them.

Each FILE is one of `autotune study export`. What a search learns from is kept: points, speeds, memory,
outcomes, the model and the machine; times of single steps, losses, configurations and the command are not.
The result is written to `autotune/reuse/shipped_studies/`, named after model, method, budget and GPU.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from autotune.reuse.shipped import FOLDER, PREFIX
from autotune.reuse.survey import MODEL_NOTE
from autotune.sizes import format_size
from autotune.study.document import Document
from autotune.study.stored import StoredTrial
from autotune.study.study_file import read_lines, write_lines

KEPT = frozenset({
    "trial_id", "outcome", "phase", "build", "disturbed", "tokens_per_second", "tokens_per_second_low",
    "tokens_per_second_high", "setup_seconds", "trial_seconds", "peak_allocated_bytes",
    "setup_peak_allocated_bytes", "phase_peak_allocated_bytes", "device_bytes", "outside_allocator_bytes",
    "required_device_bytes", "required_verified", "host_peak_bytes", "trainable_parameters",
    "total_parameters",
})  # fmt: skip
SECONDS_DIGITS = 3


def main() -> None:
    """Shorten and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reuse.ship", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    folder = Path(str(files("autotune.reuse") / FOLDER))
    for file in parser.parse_args().files:
        document = read_lines(file.read_text(encoding="utf-8").splitlines(), str(file))
        short = shortened(document)
        output = folder / f"{short.name}.jsonl"
        output.write_text("".join(write_lines(short)), encoding="utf-8")
        print(f"{output}: {len(short.trials)} trials, {output.stat().st_size:,} bytes")


def shortened(document: Document) -> Document:
    """The study with what a search learns from, and a name that says what it is."""
    head = document.head
    inputs = head.inputs
    gpu = (inputs.gpu_name or "cpu").removeprefix("NVIDIA ").lower().replace(" ", "-")
    budget = format_size(inputs.budget_bytes).replace(" ", "").replace(".0", "")
    name = f"{PREFIX}{inputs.model}-{inputs.method}-{budget}-{gpu}"
    notes = {MODEL_NOTE: head.notes[MODEL_NOTE]}
    return Document(
        name=name,
        head=head.model_copy(update={"notes": notes}),
        trials=tuple(_shortened(trial) for trial in document.trials),
        confirmations=(),
    )


def _shortened(trial: StoredTrial) -> StoredTrial:
    if trial.result is None:
        return trial
    values = trial.result.model_dump(include=set(KEPT))
    for key in (
        "setup_seconds",
        "trial_seconds",
        "tokens_per_second",
        "tokens_per_second_low",
        "tokens_per_second_high",
    ):
        if values[key] is not None:
            values[key] = round(values[key], SECONDS_DIGITS)
    result = type(trial.result)(**values)
    return trial.model_copy(update={"predicted": None, "result": result})


if __name__ == "__main__":
    main()
