"""Which of a storage's studies something can be learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from autotune.errors import AutotuneError, UsageError
from autotune.reuse.observations import speed_of
from autotune.reuse.profile import Profile, profile_of
from autotune.reuse.shipped import ShippedStudies
from autotune.reuse.similar import Similar
from autotune.reuse.similarity import LEAST_TRUST, Similarity, similarity
from autotune.study.owner import is_alive
from autotune.study.stored import StoredHead
from trials.wire import ModelSpec

Wanted = Literal["auto", "own", "off"] | tuple[str, ...]

# Further ones add little to what the most similar ones say.
MOST_STUDIES = 5
MODEL_NOTE = "model"
OWNER_NOTE = "owner"


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        similar: the studies to learn from, the most trusted first.
        looked_at: how many others there are.
        passed_over: of those that are alike but of no use, why; of those that were named, too.
    """

    similar: tuple[Similar, ...] = ()
    looked_at: int = 0
    passed_over: Mapping[str, str] = field(default_factory=dict)


def similar_studies(
    storage_url: str, target: Profile, own_name: str, wanted: Wanted, *, gone_too: bool = False
) -> Survey:
    """Looks through a storage, and what is shipped, for studies to learn from.

    Args:
        storage_url: the storage.
        target: what is about to be tuned.
        own_name: the study's own name, which is left out.
        wanted: `auto`: the most similar ones that are finished; `own`: the same without those that are
            shipped; names: these, unless nothing of them holds here; `off`: none.
        gone_too: whether names may be of studies that are not there any more.

    Raises:
        UsageError: a study that is named is not there, or cannot be learned from.
        EnvironmentProblem: the storage does not work.
    """
    if wanted == "off":
        return Survey()
    from autotune.study.reading import StorageReader

    reader, shipped = StorageReader(storage_url), ShippedStudies()
    known = {**({} if wanted == "own" else shipped.heads), **reader.heads}
    heads = {name: head for name, head in known.items() if name != own_name}
    if isinstance(wanted, tuple):
        if not gone_too:
            for name in wanted:
                if name in reader.unreadable:
                    raise reader.unreadable[name]
                if name not in heads:
                    _refuse_unknown(name, heads, own_name)
        heads = {name: heads[name] for name in dict.fromkeys(wanted) if name in heads}
    ranked, passed_over = _ranked(heads, target, every=isinstance(wanted, tuple))
    similar: list[Similar] = []
    for name, (profile, found) in ranked.items():
        if len(similar) == MOST_STUDIES:
            break
        try:
            records = (reader if name in reader.heads else shipped).records(name)
        except AutotuneError as error:
            if isinstance(wanted, tuple):
                raise
            passed_over[name] = error.message
            continue
        if not any(speed_of(record) for record in records):
            passed_over[name] = "none of its trials ran to its end" if records else "it has no trials"
            continue
        similar.append(Similar(name, found.trust, found.why, profile, records))
    return Survey(tuple(similar), len(heads), passed_over)


def _ranked(
    heads: Mapping[str, StoredHead], target: Profile, *, every: bool
) -> tuple[dict[str, tuple[Profile, Similarity]], dict[str, str]]:
    """The studies that are alike, the most trusted first, and why others are not looked at."""
    now = datetime.now(UTC)
    alike: dict[str, tuple[Profile, Similarity]] = {}
    passed_over: dict[str, str] = {}
    for name, head in heads.items():
        model = _model_of(head.notes)
        if model is None:
            passed_over[name] = "it does not hold its model"
            continue
        profile = profile_of(head.inputs, model, head.machine)
        found = similarity(profile, target)
        if found.trust == 0.0 or (not every and found.trust < LEAST_TRUST):
            if every:
                passed_over[name] = f"nothing of it holds here: it was {found.why}"
            continue
        if not every and _is_being_tuned(head, now):
            passed_over[name] = "another process is tuning it"
            continue
        alike[name] = profile, found
    order = sorted(alike, key=lambda name: (-alike[name][1].trust, -heads[name].opened_at.timestamp()))
    return {name: alike[name] for name in order}, passed_over


def _model_of(notes: Mapping[str, Any]) -> ModelSpec | None:
    try:
        return ModelSpec.model_validate(notes.get(MODEL_NOTE))
    except ValidationError:
        return None


def _is_being_tuned(head: StoredHead, now: datetime) -> bool:
    owner: Any = head.notes.get(OWNER_NOTE)
    return bool(owner) and is_alive(owner, head.opened_at, now)


def _refuse_unknown(name: str, heads: Mapping[str, StoredHead], own_name: str) -> None:
    if name == own_name:
        raise UsageError(f"--reuse names the study itself, {name}", "it goes on by itself")
    from autotune.study.study import other_studies

    raise UsageError(f"--reuse names a study that is not there: {name!r}", other_studies(name, list(heads)))
