"""`autotune show`: all of a study, or of one of its trials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import debug_option, json_option, storage_option, study_option
from autotune.cli.output import print_json, print_text
from autotune.cli.studies import find_study
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.study import Record, Study


@click.command("show")
@click.argument("name", required=False, metavar="[STUDY]")
@click.argument("trial", required=False, type=click.IntRange(min=1), metavar="[TRIAL]")
@study_option
@storage_option
@json_option
@debug_option
def show(name: str | None, trial: int | None, study: str | None, storage: str | None, as_json: bool) -> int:
    """All of STUDY (without a name the last one), or of one TRIAL of it, by its number in the table."""
    if name is not None and study is not None and name != study:
        raise UsageError(f"two studies are named, {name} and {study}", "name one")
    found = find_study(storage, name or study)
    if trial is None:
        state = study_json(found)
        print_json(state) if as_json else print_text(_study_text(found))
        return 0
    record = next((record for record in found.records() if record.number + 1 == trial), None)
    if record is None:
        numbers = [record.number + 1 for record in found.records()]
        there = f"it has {min(numbers)} to {max(numbers)}" if numbers else "it has none yet"
        raise UsageError(f"the study {found.name} has no trial {trial}", there)
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


def record_json(study: Study, record: Record) -> dict[str, Any]:
    """One trial as plain values; `result` is null while it runs."""
    from autotune.tuning.comparison import compared

    log = log_path(study, record.number + 1)
    both = compared(record.predicted, record.result) if record.predicted and record.result else []
    return {
        "number": record.number + 1,
        "point": record.point.model_dump(mode="json"),
        "predicted": record.predicted,
        "compared": {one.figure: one.as_json() for one in both},
        "started_at": record.started_at.isoformat(),
        "finished_at": record.finished_at.isoformat() if record.finished_at else None,
        "result": record.result.model_dump(mode="json") if record.result else None,
        "log": str(log) if log else None,
    }


def log_path(study: Study, number: int) -> Path | None:
    """The trial's log file, where it is on this machine."""
    from autotune.study.storage_url import default_folder
    from autotune.tuning.folders import study_folders

    path = study_folders(default_folder(), study.name, None).log_of(f"trial-{number}")
    return path if path.exists() else None


def _confirmation_json(record: Record) -> dict[str, Any]:
    return {
        "point": record.point.model_dump(mode="json"),
        "result": record.result.model_dump(mode="json") if record.result else None,
    }


def _study_text(study: Study) -> str:
    from autotune.display.columns import fields, table
    from autotune.display.results import findings_text
    from autotune.display.words import end_words, memory_of, point_words, size_words, speed_words
    from autotune.tuning.findings import findings_of

    inputs = study.inputs.model_dump(mode="json")
    parts = [fields([(key, _plain(key, value)) for key, value in inputs.items()])]
    rows = []
    for record in study.records():
        result = record.result
        rows.append(
            [
                str(record.number + 1),
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
    from autotune.display.columns import fields
    from autotune.display.words import point_words

    result = record.result
    shown = [("trial", str(record.number + 1)), ("point", point_words(record.point))]
    shown += [(f"  {key}", str(value)) for key, value in record.point.model_dump(mode="json").items()]
    shown.append(("started", record.started_at.isoformat(timespec="seconds")))
    if result is None:
        shown.append(("outcome", "running, or was interrupted"))
    else:
        values = result.model_dump(mode="json", exclude={"wire_version", "trial_id"})
        shown += [(key, _plain(key, value)) for key, value in values.items()]
    log = log_path(study, record.number + 1)
    shown.append(("log", str(log) if log else ""))
    return "\n\n".join(filter(None, [fields(shown), _comparison(record)]))


def _comparison(record: Record) -> str:
    """Predicted beside measured, as far as the trial measured; empty where nothing was predicted."""
    from autotune.display.comparisons import comparison_text
    from autotune.sizes import format_size
    from autotune.tuning.comparison import compared

    if record.predicted is None:
        return ""
    both = compared(record.predicted, record.result) if record.result else []
    parts = [comparison_text(both)] if both else []
    needed = record.predicted.get("required_device_bytes")
    if needed and all(one.figure != "required_device_bytes" for one in both):
        parts.append(f"predicted to need {format_size(needed)} of device memory")
    return "\n".join(parts)


def _plain(key: str, value: Any) -> str:
    """A value for people; empty where there is none."""
    from autotune.sizes import format_size

    if value is None or value in ({}, [], ""):
        return ""
    if key.endswith("_bytes") and isinstance(value, int) and value > 0:
        return f"{format_size(value)} ({value:,} bytes)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(key, item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in value)
    return " ".join(str(value).split()) if isinstance(value, str) else f"{value}"
