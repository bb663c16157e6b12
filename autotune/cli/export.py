"""`autotune export`: the winner in a trainer's words, from what the study holds; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import FORMATS, debug_option, json_option, option, storage_option, study_options
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.cli.values import TEXT
from autotune.errors import ExitCode, NothingFits

if TYPE_CHECKING:
    from autotune.export import Exporter, Winner
    from autotune.study import Study
    from autotune.tuning.confirm import Chosen


@click.command("export")
@study_options
@option(
    "--format",
    "formats",
    type=click.Choice(FORMATS, case_sensitive=False),
    multiple=True,
    help="A trainer whose files to write; can be given again; all is every one that makes sense.  "
    "[default: the study's --trainer, else deepspeed]",
)
@option("--export-dir", type=TEXT, metavar="DIR", help="Where to.  [default: autotune-out/STUDY]")
@option("--trial", type=click.IntRange(min=1), metavar="N", help="This trial in the winner's place.")
@option("--strict", is_flag=True, help="Exit with 1 where something of the configuration is lost.")
@storage_option
@json_option
@debug_option
def export(
    study: str | None,
    formats: tuple[str, ...],
    export_dir: str | None,
    trial: int | None,
    strict: bool,
    storage: str | None,
    as_json: bool,
) -> int:
    """Write the winner's folder: DeepSpeed configuration, training script, and the files of your trainer.

    What a trainer cannot express is said, here and in the first lines of its file.
    """
    from autotune.export import EVERY, EXPORTERS, chosen_exporters, export_folder, senseless
    from autotune.tuning.exporting import best_without_loss
    from autotune.tuning.folders import default_export_folder
    from autotune.tuning.handover import missing_folder, winner_of

    found = find_study(storage, study)
    chosen = _chosen(found, trial)
    winner = winner_of(found, chosen)
    names = formats or (found.inputs.trainer or "deepspeed",)
    exporters = chosen_exporters(names, winner.point)
    folder = Path(export_dir) if export_dir is not None else default_export_folder(found.name)
    folder = export_folder(winner, folder, exporters)
    missing = missing_folder(winner)
    if missing is not None:
        click.echo(missing, err=True)
    for name in EXPORTERS if EVERY in names else ():
        reason = senseless(name, winner.point)
        if reason is not None:
            click.echo(f"{name} is left out: {reason[0]}", err=True)
    told = []
    for exporter in exporters:
        one = _told(exporter, winner, folder)
        if one["lost"]:
            lossless = best_without_loss(found, exporter.name)
            one["lossless_trial"] = lossless.record.position if lossless else None
            for words in one["lost"]:
                click.echo(f"{exporter.name}: {words}", err=True)
            click.echo(_offer(found, exporter.name, lossless), err=True)
        told.append(one)
    if as_json:
        first = {"format": told[0]["format"], "export_dir": str(folder), "file": told[0]["file"]}
        print_json({"study": found.name, **first, "exports": told})
    else:
        for one in told:
            print_text(one["file"])
    return int(ExitCode.NOTHING_FITS) if strict and any(one["lost"] for one in told) else 0


def _chosen(study: Study, trial: int | None) -> Chosen:
    from autotune.tuning.confirm import best_so_far
    from autotune.tuning.exporting import trial_of

    if trial is not None:
        return trial_of(study, trial)
    chosen = best_so_far(study)
    if chosen is None:
        raise NothingFits(
            f"the study {study.name} has no winner to export", f"'{study.command('show')}' says why"
        )
    return chosen


def _told(exporter: Exporter, winner: Winner, folder: Path) -> dict[str, Any]:
    """One export as plain values."""
    from autotune.export import loss_words

    return {
        "format": exporter.name,
        "file": str(folder / exporter.main_file),
        "files": [str(folder / name) for name in exporter.names],
        "start": exporter.start(winner),
        "lost": list(loss_words(exporter.name, winner)),
        "lossless_trial": None,
    }


def _offer(study: Study, trainer: str, lossless: Chosen | None) -> str:
    """What loses nothing instead: the best that was measured, or how to find one."""
    from autotune.display.words import point_words

    if lossless is None:
        return (
            f"{trainer}: nothing that was measured is without loss; "
            f"'autotune run' with --trainer {trainer} searches only what is"
        )
    number, speed = lossless.record.position, lossless.measured.tokens_per_second or 0.0
    return (
        f"{trainer}: without loss, trial {number} is the best measured, at {speed:,.0f} tok/s "
        f"({point_words(lossless.record.point)}): "
        f"{study.command('export')} --format {trainer} --trial {number}"
    )
