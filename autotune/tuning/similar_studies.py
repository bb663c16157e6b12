"""Looking for the similar studies that one begins with, and telling of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError
from autotune.reuse import profile_of
from autotune.tuning.head_start import LEFT_OUT, NOTE, Carry, HeadStart, points_to_carry

if TYPE_CHECKING:
    from autotune.reuse.survey import Wanted
    from autotune.study import Study
    from autotune.tuning.task import Task

Say = Callable[[str], None]


def begin(study: Study, task: Task, storage_url: str, say: Say, detail: Say) -> HeadStart | None:
    """The head start of a study that is about to be tuned; None where there is nothing to learn from.

    Args:
        study: that is tuned; one that has trials keeps to the studies it began with.
        task: what is tuned.
        storage_url: where to look for similar studies.
        say: told which studies are used, and how far each is trusted.
        detail: told what was looked at.

    Raises:
        UsageError: a study that the user named is not there, or cannot be learned from.
        EnvironmentProblem: the storage does not work.
    """
    from autotune.reuse.survey import similar_studies
    from autotune.tuning.handover import measured_on

    wanted: Wanted = task.request.reuse
    known: Any = study.note(NOTE)
    if wanted == "off" or (known is None and any(r.result is not None for r in study.records())):
        return None
    target = profile_of(task.inputs, task.model, measured_on(task.machine))
    if known is not None:
        wanted = tuple(one["study"] for one in known["studies"])
    try:
        found = similar_studies(storage_url, target, study.name, wanted, gone_too=known is not None)
    except AutotuneError as error:
        if known is None and isinstance(task.request.reuse, tuple):
            raise
        say(f"nothing is carried over from other studies: {error.message}")
        return None
    for name, why in found.passed_over.items():
        (say if isinstance(task.request.reuse, tuple) else detail)(f"nothing is learned from {name}: {why}")
    if not found.similar:
        detail(f"no study to learn from among {found.looked_at}")
        return None
    for one in found.similar:
        say(f"learning from {one.study}, trusted {one.trust:.0%}: {one.why}")
    if known is None:
        study.set_note(NOTE, {"studies": [one.as_json() for one in found.similar]})
    most = points_to_carry(task.request.sampler, Carry())
    return HeadStart(study, target, found.similar, say, most=most)


def check_named(task: Task, storage_url: str) -> None:
    """Refuses studies that were named and cannot be used, before anything is created.

    Raises:
        UsageError: one is not there, or is the study itself.
    """
    from autotune.reuse.survey import similar_studies
    from autotune.tuning.handover import measured_on

    wanted = task.request.reuse
    if isinstance(wanted, tuple):
        target = profile_of(task.inputs, task.model, measured_on(task.machine))
        similar_studies(storage_url, target, task.request.study or task.inputs.study_name(), wanted)


def reuse_json(study: Study) -> dict[str, Any]:
    """What `autotune run --json` says of the studies that were used.

    `reuse`: one object per study (`study`, `trust`, `why`), but for those left out; `reuse_left`: the share
    of that trust which the first measurements left; `reuse_disagreement`, in words, where that is less than
    all or a study was left out; `reuse_worth`: trials and minutes saved, by prediction.
    """
    note: Any = study.note(NOTE) or {}
    left_out = note.get("left_out", [])
    used = [one for one in note.get("studies", []) if one["study"] not in left_out]
    words = [*(f"{name} {LEFT_OUT}" for name in left_out), *filter(None, [note.get("words")])]
    return {
        "reuse": used,
        "reuse_left": (note.get("left", 1.0) if used else 0.0) if note else None,
        "reuse_disagreement": "; ".join(words) or None,
        "reuse_worth": note.get("worth"),
    }
