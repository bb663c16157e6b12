"""`python -m benchmarks.reuse.record STUDY --storage URL`: a study's trials as a table.

A whole space is measured by `autotune run --sampler grid --reuse off --trials N` with N its number of points.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from autotune.study import Study, default_storage_url
from benchmarks.reuse.tables import FOLDERS, table_lines
from trials.wire import ModelSpec


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reuse.record", description=__doc__)
    parser.add_argument("study")
    parser.add_argument("--storage", default=default_storage_url())
    parser.add_argument("--output", type=Path, help="by default named after the study, beside the others")
    chosen = parser.parse_args()
    study = Study.load(chosen.storage, chosen.study)
    output = chosen.output or FOLDERS[0] / f"{study.name}.jsonl"
    output.parent.mkdir(parents=True, exist_ok=True)
    model = ModelSpec.model_validate(study.note("model"))
    output.write_text("\n".join(table_lines(study.inputs, model, study.records())) + "\n")
    print(output)


if __name__ == "__main__":
    main()
