"""Everything about one trial, for people: how it ended, what it was, what it measured, where its log is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.display.columns import fields
from autotune.display.comparisons import comparison_text
from autotune.display.words import ending_words, point_words
from autotune.sizes import format_size
from autotune.tuning.comparison import compared

if TYPE_CHECKING:
    from autotune.study import Record
    from trials.wire import TrialResult

# Said elsewhere, or in other words.
_SAID = {"wire_version", "trial_id", "outcome", "phase", "message", "versions", "ds_config"}


def trial_text(
    study: str, record: Record, *, budget_bytes: int, confirmation: TrialResult | None, log: Path | None
) -> str:
    """One trial.

    Args:
        study: its study's name.
        record: the trial.
        budget_bytes: device memory of one process.
        confirmation: its longer run, where it won and had one.
        log: its log file, where that is on this machine.
    """
    result = record.result
    ending = ending_words(result, budget_bytes) if result else "running, or waiting for its process to end"
    head = fields(
        [
            ("trial", f"{record.position} of {study}"),
            ("point", point_words(record.point)),
            ("outcome", result.outcome.value if result else ""),
            ("how it ended", ending),
            ("it said", _one_line(result.message) if result else ""),
            ("log", str(log) if log else "not on this machine"),
            ("started", record.started_at.astimezone().isoformat(" ", "seconds")),
        ]
    )
    parts = [head, "the configuration\n" + _indented(_point(record))]
    if result is not None:
        parts.append("measured\n" + _indented(_values(result)))
    if confirmation is not None:
        outcome = [("outcome", ending_words(confirmation, budget_bytes) or "ok")]
        parts.append("in the longer run\n" + _indented([*outcome, *_values(confirmation)]))
    parts.append(_comparison(record))
    if result is not None and result.versions:
        parts.append("with " + ", ".join(f"{name} {version}" for name, version in result.versions.items()))
    return "\n\n".join(filter(None, parts))


def plain_value(key: str, value: Any) -> str:
    """A value for people; empty where there is none."""
    if value is None or value in ({}, [], ""):
        return ""
    if key.endswith("_bytes") and isinstance(value, int) and value > 0:
        return f"{format_size(value)} ({value:,} bytes)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {plain_value(key, item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in value)
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return _one_line(value) if isinstance(value, str) else f"{value}"


def _point(record: Record) -> list[tuple[str, str]]:
    values = record.point.model_dump(mode="json")
    return [(key, "by rule" if value is None else str(value)) for key, value in values.items()]


def _values(result: TrialResult) -> list[tuple[str, str]]:
    values = result.model_dump(mode="json", exclude=_SAID)
    return [(key, plain_value(key, value)) for key, value in values.items()]


def _comparison(record: Record) -> str:
    """Predicted beside measured, as far as the trial measured; empty where nothing was predicted."""
    if record.predicted is None:
        return ""
    both = compared(record.predicted, record.result) if record.result else []
    parts = [comparison_text(both)] if both else []
    needed = record.predicted.get("required_device_bytes")
    if needed and all(one.figure != "required_device_bytes" for one in both):
        parts.append(f"predicted to need {format_size(needed)} of device memory")
    return "\n".join(parts)


def _indented(pairs: list[tuple[str, str]]) -> str:
    return "\n".join(f"  {line}" for line in fields(pairs, margin=2).splitlines())


def _one_line(text: str) -> str:
    return " ".join(text.split())
