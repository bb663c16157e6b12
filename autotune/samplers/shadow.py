"""A study in memory in which a sampler makes its choice; nothing of it reaches the storage."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import TrialState, create_trial

from autotune.samplers.encoding import Encoding
from autotune.study.record import Record
from autotune.study.states import Verdict, verdict

# Optuna says so for each study it creates, and one is created for each proposal.
optuna.logging.set_verbosity(optuna.logging.WARNING)

RUNNING = Verdict(TrialState.RUNNING)


def new_shadow(sampler: BaseSampler) -> optuna.Study:
    """An empty study in memory."""
    return optuna.create_study(direction="maximize", sampler=sampler)


def shadow_study(history: Sequence[Record], encoding: Encoding, sampler: BaseSampler) -> optuna.Study:
    """A study in memory that holds a history, each trial in the state that `states.verdict` gives it.

    Args:
        history: records; those without a result are RUNNING, so that their neighbourhood is avoided.
        encoding: knows all their points.
        sampler: the study's.
    """
    study = new_shadow(sampler)
    for record in history:
        told = verdict(record.result) if record.result else RUNNING
        study.add_trial(
            create_trial(
                state=told.state,
                value=told.value,
                params=encoding.parameters(record.point),
                distributions=encoding.distributions,
                constraints=dict(told.constraints),
            )
        )
    return study


def teaches(record: Record) -> bool:
    """Whether samplers learn something of a record: it is over and did not fail."""
    return record.result is not None and verdict(record.result).state != TrialState.FAIL
