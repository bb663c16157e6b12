"""What is in a storage: one summary for each study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from optuna.storages import RDBStorage

from autotune.study.identity import CREATED_AT, OPENED_AT, SCHEMA, read_inputs
from autotune.study.inputs import StudyInputs
from autotune.study.storage import attempt, connect
from autotune.study.trial_codec import is_ours, is_over, is_pending, to_record
from trials.wire import Outcome


@dataclass(frozen=True)
class StudySummary:
    """A study at a glance.

    Attributes:
        name: unique within the storage.
        created_at: aware, UTC.
        opened_at: when it was last tuned; aware, UTC.
        inputs: what it is about.
        trials: how many ended with each outcome.
        running: how many a live process runs now.
        best_tokens_per_second: of the trials that ran to their end; None if there is none.
    """

    name: str
    created_at: datetime
    opened_at: datetime
    inputs: StudyInputs
    trials: Mapping[Outcome, int]
    running: int
    best_tokens_per_second: float | None


def list_studies(storage_url: str) -> tuple[StudySummary, ...]:
    """The studies of a storage, the one last tuned last; other people's Optuna studies are passed over.

    Raises:
        UsageError: this is no URL of a storage.
        EnvironmentProblem: the storage does not work, or a newer autotune wrote a study.
    """
    storage = connect(storage_url, create=False)
    if storage is None:
        return ()
    summaries = attempt(storage_url, lambda: _summaries(storage))
    return tuple(sorted(summaries, key=lambda summary: summary.opened_at))


def latest_study(storage_url: str) -> str | None:
    """The name of the study that was tuned last, or None if there is none.

    Raises:
        UsageError: this is no URL of a storage.
        EnvironmentProblem: the storage does not work.
    """
    storage = connect(storage_url, create=False)
    if storage is None:
        return None
    studies = [study for study in attempt(storage_url, storage.get_all_studies) if SCHEMA in study.user_attrs]
    if not studies:
        return None
    return str(max(studies, key=lambda study: _last_opened(study.user_attrs)).study_name)


def _summaries(storage: RDBStorage) -> list[StudySummary]:
    now = datetime.now(UTC)
    summaries = []
    for study in storage.get_all_studies():
        attrs, name = study.user_attrs, study.study_name
        if SCHEMA not in attrs:
            continue
        inputs = read_inputs(attrs, name)
        trials = [
            trial for trial in storage.get_all_trials(study._study_id, deepcopy=False) if is_ours(trial)
        ]
        results = [to_record(trial, name).result for trial in trials if is_over(trial)]
        speeds = [
            r.tokens_per_second for r in results if r and r.outcome == Outcome.OK and r.tokens_per_second
        ]
        summaries.append(
            StudySummary(
                name=name,
                created_at=datetime.fromisoformat(attrs[CREATED_AT]),
                opened_at=datetime.fromisoformat(_last_opened(attrs)),
                inputs=inputs,
                trials=Counter(result.outcome for result in results if result),
                running=sum(is_pending(trial, now) for trial in trials),
                best_tokens_per_second=max(speeds, default=None),
            )
        )
    return summaries


def _last_opened(attrs: Mapping[str, str]) -> str:
    return attrs.get(OPENED_AT, attrs[CREATED_AT])
