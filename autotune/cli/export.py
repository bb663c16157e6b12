"""`autotune export`: the winner's folder, from what the study holds; nothing is run."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.options import debug_option, json_option, option, storage_option, study_option
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.errors import NothingFits

FORMATS = ("deepspeed", "script")


@click.command("export")
@study_option
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="deepspeed",
    show_default=True,
    help="Both are in the folder: ds_config.json and train.py.",
)
@option("--export-dir", metavar="DIR", help="Where to.  [default: autotune-out/STUDY]")
@storage_option
@json_option
@debug_option
def export(study: str | None, form: str, export_dir: str | None, storage: str | None, as_json: bool) -> int:
    """Write the winner's folder: DeepSpeed configuration, training script and how to start it."""
    from autotune.export import export_folder
    from autotune.tuning.confirm import best_so_far
    from autotune.tuning.handover import winner_of

    found = find_study(storage, study)
    chosen = best_so_far(found)
    if chosen is None:
        raise NothingFits(
            f"the study {found.name} has no winner to export", f"'autotune show {found.name}' says why"
        )
    folder = Path(export_dir) if export_dir else Path("autotune-out") / found.name
    folder = export_folder(winner_of(found, chosen), folder)
    main_file = folder / {"deepspeed": "ds_config.json", "script": "train.py"}[form]
    if as_json:
        print_json({"study": found.name, "format": form, "export_dir": str(folder), "file": str(main_file)})
    else:
        print_text(str(main_file))
    return 0
