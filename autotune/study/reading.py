"""Looking through a storage of many studies: heads at once, trials only of the few that are asked for.

Optuna's tables are read directly: its objects for one study of forty trials cost a tenth of a second, and
here only a few attributes matter. That the tables are as expected, Optuna checks when the storage is opened.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import sqlalchemy
from optuna.storages import RDBStorage

from autotune.errors import AutotuneError
from autotune.study.identity import CONFIRMATION, SCHEMA, read_head
from autotune.study.judging import judge
from autotune.study.record import Record
from autotune.study.storage import attempt, connect
from autotune.study.stored import StoredHead
from autotune.study.trial_codec import FINISHED_AT, POINT, RESULT, STARTED_AT, decode_confirmation, stored_of
from autotune.study.trial_codec import SCHEMA as TRIAL_SCHEMA

_HEADS = sqlalchemy.text(
    "SELECT s.study_name, a.key, a.value_json FROM studies s JOIN study_user_attributes a "
    "ON a.study_id = s.study_id WHERE a.key NOT LIKE :confirmations"
)
_TRIALS = sqlalchemy.text(
    "SELECT t.number, a.key, a.value_json FROM studies s JOIN trials t ON t.study_id = s.study_id "
    "JOIN trial_system_attributes a ON a.trial_id = t.trial_id "
    "WHERE s.study_name = :name AND t.state NOT IN ('RUNNING', 'WAITING') AND a.key IN :keys "
    "ORDER BY t.number"
).bindparams(sqlalchemy.bindparam("keys", expanding=True))
_CONFIRMATIONS = sqlalchemy.text(
    "SELECT a.value_json FROM studies s JOIN study_user_attributes a ON a.study_id = s.study_id "
    "WHERE s.study_name = :name AND a.key LIKE :confirmations ORDER BY a.key"
)
_TRIAL_KEYS = (POINT, RESULT, STARTED_AT, FINISHED_AT, TRIAL_SCHEMA)


class StorageReader:
    """The studies of a storage as they are at this moment.

    Attributes:
        heads: by name, of those that can be read.
        unreadable: by name, why the others cannot.
    """

    def __init__(self, storage_url: str) -> None:
        """Reads all heads.

        Raises:
            UsageError: this is no URL of a storage.
            EnvironmentProblem: the storage does not work.
        """
        self._url = storage_url
        self._storage: RDBStorage | None = connect(storage_url, create=False)
        self.heads: dict[str, StoredHead] = {}
        self.unreadable: dict[str, AutotuneError] = {}
        attrs: dict[str, dict[str, Any]] = {}
        for name, key, value in self._rows(_HEADS, confirmations=CONFIRMATION + "%"):
            attrs.setdefault(name, {})[key] = json.loads(value)
        for name, known in attrs.items():
            if SCHEMA not in known:
                continue
            try:
                self.heads[name] = read_head(known, name)
            except AutotuneError as error:
                self.unreadable[name] = error

    def records(self, name: str) -> tuple[Record, ...]:
        """A study's trials that are over, by number, without what was predicted of them.

        What did not hold in its longer run ends as that one did: see `autotune.study.judging`.

        Raises:
            EnvironmentProblem: a newer autotune wrote one of them, or the storage does not work.
        """
        trials: dict[int, dict[str, Any]] = {}
        for number, key, value in self._rows(_TRIALS, name=name, keys=list(_TRIAL_KEYS)):
            trials.setdefault(number, {})[key] = json.loads(value)
        over = [(number, attrs) for number, attrs in trials.items() if POINT in attrs and RESULT in attrs]
        records = tuple(
            replace(stored_of(number, attrs, name).record(), position=position)
            for position, (number, attrs) in enumerate(over, start=1)
        )
        longer = self._rows(_CONFIRMATIONS, name=name, confirmations=CONFIRMATION + "%")
        confirmations = [decode_confirmation(json.loads(value), name).record() for (value,) in longer]
        return judge(records, confirmations, self.heads[name].inputs.budget_bytes)

    def _rows(self, query: sqlalchemy.TextClause, **values: Any) -> list[Any]:
        storage = self._storage
        if storage is None:
            return []

        def read() -> list[Any]:
            with storage.engine.connect() as connection:
                return list(connection.execute(query, values))

        return attempt(self._url, read)
