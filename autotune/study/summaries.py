"""What is in a storage: one summary for each study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from optuna.storages import RDBStorage
from optuna.study._frozen import FrozenStudy

from autotune.errors import AutotuneError
from autotune.study.identity import CONFIRMATION, SCHEMA, last_opened, read_head
from autotune.study.inputs import StudyInputs
from autotune.study.judging import good_among, judge
from autotune.study.record import Record
from autotune.study.storage import attempt, connect
from autotune.study.stored import DECIDED_NOTE
from autotune.study.trial_codec import decode_confirmation, is_ours, is_over, is_pending, to_record
from trials.wire import Outcome, Point, TrialResult


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
        best_tokens_per_second: of the winner where there is one; else of the fastest trial that ran to its
            end, as its confirmation measured it where it has one; None if none did.
        notes: what is kept beside the trials, by key.
    """

    name: str
    created_at: datetime
    opened_at: datetime
    inputs: StudyInputs
    trials: Mapping[Outcome, int]
    running: int
    best_tokens_per_second: float | None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contents:
    """What a storage holds; other people's Optuna studies are passed over.

    Attributes:
        summaries: the studies, the one last tuned last.
        unreadable: by name, why a study cannot be read: a newer autotune wrote it, or it is damaged.
    """

    summaries: tuple[StudySummary, ...] = ()
    unreadable: Mapping[str, AutotuneError] = field(default_factory=dict)


def list_studies(storage_url: str) -> tuple[StudySummary, ...]:
    """The studies of a storage that can be read, the one last tuned last.

    Raises:
        UsageError: this is no URL of a storage.
        EnvironmentProblem: the storage does not work.
    """
    return contents_of(storage_url).summaries


def contents_of(storage_url: str) -> Contents:
    """All studies of a storage, those that cannot be read among them.

    Raises:
        UsageError: this is no URL of a storage.
        EnvironmentProblem: the storage does not work.
    """
    storage = connect(storage_url, create=False)
    return Contents() if storage is None else attempt(storage_url, lambda: _contents(storage))


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
    return str(max(studies, key=lambda study: str(last_opened(study.user_attrs))).study_name)


def _contents(storage: RDBStorage) -> Contents:
    now = datetime.now(UTC)
    summaries, unreadable = [], {}
    for study in storage.get_all_studies():
        if SCHEMA not in study.user_attrs:
            continue
        try:
            summaries.append(_summary(storage, study, now))
        except AutotuneError as error:
            unreadable[study.study_name] = error
    return Contents(tuple(sorted(summaries, key=lambda summary: summary.opened_at)), unreadable)


def _summary(storage: RDBStorage, study: FrozenStudy, now: datetime) -> StudySummary:
    name = study.study_name
    attrs = study.user_attrs
    head = read_head(attrs, name)
    trials = [trial for trial in storage.get_all_trials(study._study_id, deepcopy=False) if is_ours(trial)]
    records = [to_record(trial, name) for trial in trials if is_over(trial)]
    results = [record.result for record in records]
    confirmations = [
        decode_confirmation(attrs[key], name).record()
        for key in sorted(attrs)
        if key.startswith(CONFIRMATION)
    ]
    budget_bytes = head.inputs.budget_bytes
    judged = judge(records, confirmations, budget_bytes)
    confirmed = good_among(confirmations, budget_bytes)
    return StudySummary(
        name=name,
        created_at=head.created_at,
        opened_at=head.opened_at,
        inputs=head.inputs,
        trials=Counter(result.outcome for result in results if result),
        running=sum(is_pending(trial, now) for trial in trials),
        best_tokens_per_second=_best(judged, confirmed, head.notes.get(DECIDED_NOTE)),
        notes=head.notes,
    )


def _best(
    records: Sequence[Record], confirmed: Mapping[Point, TrialResult], decided: Mapping[str, Any] | None
) -> float | None:
    speeds = {}
    for record in records:
        result = confirmed.get(record.point, record.result)
        ran = record.result is not None and record.result.outcome is Outcome.OK
        if ran and result is not None and result.outcome is Outcome.OK and result.tokens_per_second:
            speeds[record.number] = result.tokens_per_second
    if decided is not None and decided["trials"] == len(records) and decided["number"] in speeds:
        return speeds[decided["number"]]
    return max(speeds.values(), default=None)
