"""Opening Optuna's relational storage, and what can be wrong with it in the user's words."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from autotune.errors import AutotuneError, EnvironmentProblem, UsageError
from autotune.study.storage_url import default_folder, redact, secrets_of

optuna.logging.set_verbosity(optuna.logging.WARNING)

T = TypeVar("T")

LOCK_TIMEOUT_SECONDS = 60
CONNECT_TIMEOUT_SECONDS = 10
# SQLite refuses at once, without waiting, where waiting would be a deadlock; the transaction is repeated.
ATTEMPTS = 20
FORMS = "write sqlite:///studies.db or postgresql://user:password@host/database"


def connect(storage_url: str, *, create: bool) -> RDBStorage | None:
    """Opens a storage.

    Args:
        storage_url: as SQLAlchemy writes them.
        create: whether to create an SQLite file that does not exist; its folder is only created if it is
            the default one.

    Returns:
        None if the SQLite file does not exist and is not to be created.

    Raises:
        UsageError: this is no URL of a storage that lasts.
        EnvironmentProblem: it cannot be read, written or reached, its driver is missing, or it holds
            something else than studies.
    """
    url = _parse(storage_url)
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.get_backend_name() == "sqlite":
        path = _sqlite_path(url)
        if not path.exists():
            if not create:
                return None
            _make_room(path)
        _refuse_foreign_file(path)
        options["connect_args"] = {"timeout": LOCK_TIMEOUT_SECONDS}
    elif url.get_backend_name() in ("postgresql", "mysql", "mariadb"):
        options["connect_args"] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    # Optuna formats the URL as a template for its schema version; a password may hold braces.
    text = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    try:
        return attempt(storage_url, lambda: RDBStorage(text, engine_kwargs=options))
    except (ImportError, NoSuchModuleError):
        hint = 'pip install "autotune-gpu[postgresql]"' if url.get_backend_name() == "postgresql" else FORMS
        raise EnvironmentProblem(f"the driver for {url.drivername} is not installed", hint) from None
    except RuntimeError as error:
        # Optuna says so itself when its tables are of another version.
        raise EnvironmentProblem(
            f"{redact(storage_url)}: {_first_line(error, storage_url)}",
            "upgrade the older one of autotune and the storage (optuna storage upgrade)",
        ) from None


def attempt(storage_url: str, action: Callable[[], T]) -> T:
    """Does something with a storage; does it again while another process holds it.

    Args:
        storage_url: the storage's, for messages.
        action: one transaction, or several that may be repeated.

    Raises:
        EnvironmentProblem: it cannot be done.
    """
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return action()
        except (StorageInternalError, DBAPIError) as error:
            if attempts_left and _is_passing(error):
                time.sleep(random.uniform(0.01, 0.2))
                continue
            raise _problem(storage_url, error) from None
    raise AssertionError("the last attempt returns or raises")


def _parse(storage_url: str) -> sqlalchemy.engine.URL:
    try:
        url = sqlalchemy.engine.make_url(storage_url)
    except (ArgumentError, ValueError):
        # Not shown: in a URL that cannot be read nobody knows where its password is.
        raise UsageError("that is not the URL of a storage", FORMS) from None
    if url.drivername == "postgres":
        url = url.set(drivername="postgresql")
    if url.drivername == "postgresql" and find_spec("psycopg2") is None:
        url = url.set(drivername="postgresql+psycopg")
    return url


def _sqlite_path(url: sqlalchemy.engine.URL) -> Path:
    if not url.database or ":memory:" in url.database or url.database.startswith("file:"):
        raise UsageError("a study in memory would be gone at the end", "name a file: sqlite:///studies.db")
    return Path(url.database)


def _make_room(path: Path) -> None:
    if path.parent == default_folder():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentProblem(
                f"the folder for studies, {path.parent}, cannot be created: {error.strerror}",
                "name another place: --storage sqlite:///studies.db",
            ) from None
    if not path.parent.is_dir():
        raise EnvironmentProblem(
            f"the folder of the storage, {path.parent}, does not exist", "create it first"
        )


def _refuse_foreign_file(path: Path) -> None:
    """Keeps Optuna from adding its tables to somebody else's database."""
    if not path.exists():
        return
    # Writable where possible: after a kill the first reader has to roll the journal back.
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_SECONDS)) as connection:
            tables = {
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            }
    except sqlite3.DatabaseError as error:
        raise EnvironmentProblem(
            f"the storage {path} cannot be read: {error}", "name another file, or remove this one"
        ) from None
    if tables and not tables & {"studies", "version_info"}:
        raise EnvironmentProblem(f"{path} is a database of something else", "name another file")


def _is_passing(error: Exception) -> bool:
    # Two processes that create the tables at the same moment meet in the last two.
    text = f"{error} {error.__cause__}"
    return any(
        sign in text for sign in ("locked", "already exists", "UNIQUE constraint", "deadlock detected")
    )


def _problem(storage_url: str, error: Exception) -> AutotuneError:
    cause = error.__cause__ or error
    original = getattr(cause, "orig", None) or cause
    return EnvironmentProblem(
        f"the storage {redact(storage_url)} does not work: {_first_line(original, storage_url)}",
        "check that it can be reached and written, or name another: --storage sqlite:///studies.db",
    )


def _first_line(error: BaseException, storage_url: str) -> str:
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    for secret in secrets_of(storage_url):
        text = text.replace(secret, "***")
    return text
