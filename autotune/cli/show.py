"""`autotune show`: all of a study, or of one of its trials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.completing import complete_studies
from autotune.cli.options import debug_option, json_option, storage_option, study_option
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.study import Record, Study


@click.command("show")
@click.argument("name", required=False, metavar="[STUDY]", shell_complete=complete_studies)
@click.argument("trial", required=False, type=click.IntRange(min=1), metavar="[TRIAL]")
@study_option
@storage_option
@json_option
@debug_option
def show(name: str | None, trial: int | None, study: str | None, storage: str | None, as_json: bool) -> int:
    """All of STUDY (without a name the last one), or of one TRIAL of it, by its number in the progress.

    \b
        autotune show            the last study
        autotune show 3          its third trial
        autotune show STUDY 3    the same of any study
    """
    if name is not None and trial is None and name.isdecimal():
        trial, name = int(name), None
    if name is not None and study is not None and name != study:
        raise UsageError(f"two studies are named, {name} and {study}", "name one")
    found = find_study(storage, name or study)
    if trial is None:
        state = study_json(found)
        print_json(state) if as_json else print_text(_study_text(found))
        return 0
    record = find_trial(found, trial)
    print_json(record_json(found, record)) if as_json else print_text(_record_text(found, record))
    return 0


def study_json(study: Study) -> dict[str, Any]:
    """Inputs, findings, trials and confirmations as plain values."""
    from autotune.tuning.findings import findings_json, findings_of

    return {
        "study": study.name,
        "inputs": study.inputs.model_dump(mode="json"),
        "findings": findings_json(findings_of(study)),
        "trials": [record_json(study, record) for record in study.records()],
        "confirmations": [_confirmation_json(record) for record in study.confirmations()],
    }


def find_trial(study: Study, position: int) -> Record:
    """The trial with this number, 1 for the first.

    Raises:
        UsageError: there is none.
    """
    records = study.records()
    if not 1 <= position <= len(records):
        there = f"it has 1 to {len(records)}" if records else "it has none yet"
        raise UsageError(f"the study {study.name} has no trial {position}", there)
    return records[position - 1]


def record_json(study: Study, record: Record) -> dict[str, Any]:
    """One trial as plain values; `result` is null while it runs."""
    from autotune.display.words import ending_words
    from autotune.tuning.comparison import compared

    log = log_path(study, record)
    both = compared(record.predicted, record.result) if record.predicted and record.result else []
    return {
        "number": record.position,
        "point": record.point.model_dump(mode="json"),
        "predicted": record.predicted,
        "compared": {one.figure: one.as_json() for one in both},
        "started_at": record.started_at.isoformat(),
        "finished_at": record.finished_at.isoformat() if record.finished_at else None,
        "result": record.result.model_dump(mode="json") if record.result else None,
        "error": (ending_words(record.result, study.inputs.budget_bytes) or None) if record.result else None,
        "log": str(log) if log else None,
    }


def log_path(study: Study, record: Record) -> Path | None:
    """The trial's log file, where it is on this machine."""
    from autotune.study.storage_url import default_folder
    from autotune.tuning.folders import study_folders, trial_id

    name = record.result.trial_id if record.result else trial_id(record.position, record.number)
    path = study_folders(default_folder(), study.name, study.url, None).log_of(name)
    return path if path.exists() else None


def _confirmation_json(record: Record) -> dict[str, Any]:
    return {
        "point": record.point.model_dump(mode="json"),
        "result": record.result.model_dump(mode="json") if record.result else None,
    }


def _study_text(study: Study) -> str:
    from autotune.display.columns import fields, table
    from autotune.display.one_trial import plain_value
    from autotune.display.results import findings_text
    from autotune.display.words import end_words, memory_of, point_words, size_words, speed_words
    from autotune.tuning.findings import findings_of

    inputs = study.inputs.model_dump(mode="json")
    parts = [fields([(key, plain_value(key, value)) for key, value in inputs.items()])]
    rows = []
    for record in study.records():
        result = record.result
        rows.append(
            [
                str(record.position),
                result.outcome.value if result else "running",
                point_words(record.point),
                size_words(memory_of(result)) if result else "",
                speed_words(result.tokens_per_second) if result else "",
                end_words(result) if result else "",
            ]
        )
    if rows:
        parts.append(table(["#", "outcome", "point", "memory", "speed", "why"], rows, right=(0, 3, 4)))
    parts.append(findings_text(findings_of(study)))
    return "\n\n".join(parts)


def _record_text(study: Study, record: Record) -> str:
    from autotune.display.one_trial import trial_text
    from autotune.tuning.confirmations import confirmation_of

    return trial_text(
        study.name,
        record,
        budget_bytes=study.inputs.budget_bytes,
        confirmation=confirmation_of(study, record.point),
        log=log_path(study, record),
    )
