"""A study: its trials, kept in Optuna's storage so that a kill at any time loses at most the trial that runs.

Only real trials are in it. What a sampler thinks in between lives in memory (autotune/samplers).
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import UsageError
from autotune.study.identity import (
    CONFIRMATION,
    MACHINE,
    NOTE,
    OPENED_AT,
    SCHEMA,
    checked_name,
    create_study,
    read_head,
)
from autotune.study.inputs import StudyInputs
from autotune.study.measured_on import MeasuredOn, machine_of_results
from autotune.study.owner import this_process
from autotune.study.point_taken import PointTaken
from autotune.study.record import Record
from autotune.study.states import verdict
from autotune.study.storage import attempt, connect
from autotune.study.storage_url import command_words
from autotune.study.stored import StoredConfirmation, StoredHead, StoredTrial
from autotune.study.trial_codec import (
    ABANDONED,
    FINISHED_AT,
    RESULT,
    decode_confirmation,
    encode_confirmation,
    encode_result,
    is_ours,
    is_over,
    is_pending,
    new_trial,
    now_text,
    summary_attributes,
    to_record,
    to_stored,
)
from trials.wire import Point, TrialResult

SHOWN_NAMES = 3

P = ParamSpec("P")
T = TypeVar("T")


class Study:
    """Trials with equal inputs, and what was learned of them.

    Attributes:
        name: unique within the storage.
        inputs: what it is about.
    """

    def __init__(self, storage_url: str, storage: RDBStorage, name: str, inputs: StudyInputs) -> None:
        """Use `Study.open` or `Study.load`."""
        self.name = name
        self.inputs = inputs
        self._url = storage_url
        self._storage = storage
        self._id = self._do(storage.get_study_id_from_name, name)
        # The sampler is never asked: points come from autotune/samplers.
        self._optuna = self._do(optuna.load_study, study_name=name, storage=storage, sampler=RandomSampler())
        self._records: dict[int, Record] = {}

    @classmethod
    def open(cls, storage_url: str, inputs: StudyInputs, name: str | None = None) -> Study:
        """Opens the study of these inputs for tuning, or creates it; tidies up after dead processes.

        Args:
            storage_url: where studies are kept.
            inputs: what the study is about.
            name: None: the name that follows from the inputs.

        Raises:
            UsageError: a study of this name is about something else; the message says what differs.
            EnvironmentProblem: the storage does not work, or a newer autotune wrote the study.
        """
        name = inputs.study_name() if name is None else checked_name(name)
        storage = connect(storage_url, create=True)
        assert storage is not None
        attempt(storage_url, lambda: create_study(storage, name, inputs))
        study = cls(storage_url, storage, name, inputs)
        found = study.head().inputs
        different = inputs.differences(found)
        if different:
            field = different[0]
            others = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            raise UsageError(
                f"the study {name} is about another {field}: {getattr(found, field)!r}, "
                f"not {getattr(inputs, field)!r}{others}",
                "name another study, or none: it is then found by its inputs",
            )
        study._do(study._optuna.set_user_attr, OPENED_AT, now_text())
        study._sweep()
        return study

    @classmethod
    def load(cls, storage_url: str, name: str) -> Study:
        """Opens a study that exists, for reading; nothing is written.

        Raises:
            UsageError: there is no such study; the hint has the closest names.
            EnvironmentProblem: the storage does not work, or a newer autotune wrote the study.
        """
        storage = connect(storage_url, create=False)
        studies = attempt(storage_url, storage.get_all_studies) if storage else []
        names = [study.study_name for study in studies if SCHEMA in study.user_attrs]
        if storage is None or name not in names:
            raise UsageError(f"there is no study {name!r}", other_studies(name, names))
        attrs = next(study.user_attrs for study in studies if study.study_name == name)
        return cls(storage_url, storage, name, read_head(attrs, name).inputs)

    def records(self) -> tuple[Record, ...]:
        """The trials that are over, and those that a live process runs (without a result), by number.

        Trials that were interrupted are not among them: their points may be tried again.
        """
        now = datetime.now(UTC)
        records: list[Record] = []
        for trial in self._trials():
            if not is_over(trial) and not is_pending(trial, now):
                continue
            known = self._records.get(trial.number)
            if known is None:
                known = to_record(trial, self.name)
            # An earlier trial may have been interrupted since this one was read.
            if known.position != len(records) + 1:
                known = dataclasses.replace(known, position=len(records) + 1)
            if is_over(trial):
                self._records[trial.number] = known
            records.append(known)
        return tuple(records)

    def begin(self, point: Point, predicted: Mapping[str, Any] | None = None) -> int:
        """Notes that this process now tries a point.

        Args:
            point: what is tried.
            predicted: what was predicted for it, in JSON values.

        Returns:
            The trial's number.

        Raises:
            PointTaken: another live process has just begun the same point.
        """
        template = new_trial(point, predicted, this_process())
        trial_id = self._do(self._storage.create_new_trial, self._id, template)
        number: int = self._do(self._storage.get_trial, trial_id).number
        earlier = [record for record in self.records() if record.number < number and record.result is None]
        if any(record.point == point for record in earlier):
            self.abandon(number)
            raise PointTaken("another process is trying this point", "choose another one")
        return number

    def finish(self, number: int, result: TrialResult) -> None:
        """Notes what a trial reported."""
        trial = self._trial(number)
        assert not is_over(trial), f"trial {number} has a result"
        if trial.state.is_finished():
            # Taken for dead, so its point may have been tried again; a measurement is kept all the same.
            self._do(self._storage.create_new_trial, self._id, self._finished_copy(trial, result))
            return
        # The result first and whole: killed after this, the rest is made up for at the next opening.
        self._set(trial, {FINISHED_AT: now_text(), RESULT: encode_result(result)})
        self._close(trial, result)

    def abandon(self, number: int) -> None:
        """Notes that a trial was interrupted: its point may be tried again. One that is over stays."""
        trial = self._trial(number)
        if trial.state.is_finished():
            return
        result = to_stored(trial, self.name).result
        if result is not None:
            self._close(trial, result)
            return
        self._do(self._storage.set_trial_user_attr, trial._trial_id, "outcome", ABANDONED)
        self._do(self._optuna.tell, number, state=TrialState.FAIL, skip_if_finished=True)

    def add_confirmation(self, point: Point, result: TrialResult) -> None:
        """Keeps a further measurement of a point beside the trials."""
        number = len(self.confirmations())
        # One attribute each: two processes that add one at the same time lose none.
        key = f"{CONFIRMATION}{now_text()}:{uuid.uuid4().hex[:8]}"
        value = encode_confirmation(number, point, result)
        self._do(self._optuna.set_user_attr, key, value)

    def confirmations(self) -> tuple[Record, ...]:
        """The confirmations, oldest first; their numbers are not those of trials."""
        return tuple(stored.record() for stored in self.stored_confirmations())

    def stored_trials(self) -> tuple[StoredTrial, ...]:
        """The trials that are over as they are kept, by number."""
        return tuple(to_stored(trial, self.name) for trial in self._trials() if is_over(trial))

    def stored_confirmations(self) -> tuple[StoredConfirmation, ...]:
        """The confirmations as they are kept, oldest first."""
        attrs = self._attrs()
        keys = sorted(key for key in attrs if key.startswith(CONFIRMATION))
        return tuple(decode_confirmation(attrs[key], self.name) for key in keys)

    @property
    def url(self) -> str:
        """The storage it is kept in; may hold a password."""
        return self._url

    def command(self, verb: str) -> str:
        """What a user types to ask something about this study: `autotune show NAME --storage URL`."""
        return command_words(verb, self.name, self._url)

    def set_note(self, key: str, value: Any) -> None:
        """Keeps a value under a key. The value is JSON."""
        self._do(self._optuna.set_user_attr, NOTE + key, value)

    def note(self, key: str) -> Any:
        """The value last kept under a key, or None."""
        return self._attrs().get(NOTE + key)

    def head(self) -> StoredHead:
        """All that is kept of the study beside its trials and confirmations, as it is now."""
        return read_head(self._attrs(), self.name)

    def machine(self) -> MeasuredOn | None:
        """What it was last measured on; None where nothing is known of it."""
        results = [record.result for record in self.records() if record.result is not None]
        return self.head().machine or machine_of_results(results)

    def set_machine(self, machine: MeasuredOn) -> None:
        """Keeps what it is measured on from now on."""
        if self.head().machine == machine:
            return
        self._do(self._optuna.set_user_attr, MACHINE, machine.model_dump(mode="json"))

    def delete(self) -> None:
        """Removes the study and all its trials from the storage."""
        self._do(optuna.delete_study, study_name=self.name, storage=self._storage)

    def _sweep(self) -> None:
        """Ends the trials of processes that died: with their result if they left one, else abandoned."""
        now = datetime.now(UTC)
        for trial in self._trials():
            if trial.state == TrialState.RUNNING and not is_pending(trial, now):
                try:
                    self.abandon(trial.number)
                except UpdateFinishedTrialError:
                    continue  # another process swept it in this moment

    def _close(self, trial: FrozenTrial, result: TrialResult) -> None:
        told = verdict(result, self.inputs.budget_bytes)
        for key, value in summary_attributes(result).items():
            self._do(self._storage.set_trial_user_attr, trial._trial_id, key, value)
        live = self._do(optuna.trial.Trial, self._optuna, trial._trial_id)
        for key, number in told.constraints.items():
            if key not in trial.constraints:
                self._do(live.set_constraint, key, number)
        self._do(self._optuna.tell, trial.number, told.value, state=told.state, skip_if_finished=True)

    def _finished_copy(self, trial: FrozenTrial, result: TrialResult) -> FrozenTrial:
        told = verdict(result, self.inputs.budget_bytes)
        return create_trial(
            state=told.state,
            value=told.value,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=trial.user_attrs | summary_attributes(result),
            system_attrs=trial.system_attrs | {FINISHED_AT: now_text(), RESULT: encode_result(result)},
            constraints=dict(told.constraints),
        )

    def _set(self, trial: FrozenTrial, attrs: Mapping[str, Any]) -> None:
        for key, value in attrs.items():
            self._do(self._storage.set_trial_system_attr, trial._trial_id, key, value)

    def _trials(self) -> list[FrozenTrial]:
        trials: list[FrozenTrial] = self._do(self._optuna.get_trials, deepcopy=False)
        return [trial for trial in trials if is_ours(trial)]

    def _trial(self, number: int) -> FrozenTrial:
        def read() -> FrozenTrial:
            return self._storage.get_trial(
                self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
            )

        return self._do(read)

    def _attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = self._do(self._storage.get_study_user_attrs, self._id)
        return attrs

    def _do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return attempt(self._url, lambda: function(*args, **kwargs))


def other_studies(name: str, names: Sequence[str]) -> str:
    """Which studies there are in the place of one that is not, as a hint for the user."""
    if not names:
        return "this storage has none: autotune run begins one"
    close = get_close_matches(name, names, n=3, cutoff=0.4)
    if close:
        return f"did you mean {' or '.join(close)}?"
    shown = names[-SHOWN_NAMES:]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"studies: {', '.join(shown)}{more}"
