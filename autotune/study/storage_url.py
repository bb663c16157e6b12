"""Where studies are kept: the URL of the storage, its default, and how to show it without its password."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from pathlib import Path

FILE_NAME = "studies.db"
_CREDENTIALS = re.compile(r"^([A-Za-z][\w+.-]*://[^:/@?]*):(.*)@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|pwd|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


def default_storage_url() -> str:
    """The storage that is used when none is named: `AUTOTUNE_STORAGE`, or SQLite in the user's data folder.

    Nothing is created.
    """
    named = os.environ.get("AUTOTUNE_STORAGE", "").strip()
    return named or f"sqlite:///{default_folder() / FILE_NAME}"


def default_folder() -> Path:
    """The user's data folder for autotune, by the platform's custom; it may not exist."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "autotune"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "autotune"
    # The specification says that a relative path here is to be ignored.
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "share") / "autotune"


def storage_mark(url: str) -> str:
    """A few letters by which the files of a storage's studies differ from those of others.

    Empty for the SQLite file in the user's data folder. A relative path means another file in another folder.
    """
    scheme, separator, path = url.partition(":///")
    if separator and scheme.split("+")[0] == "sqlite":
        file = Path(path.partition("?")[0]).absolute()
        if file == (default_folder() / FILE_NAME).absolute():
            return ""
        url = f"sqlite:///{file}"
    return hashlib.sha256(os.fsencode(redact(url))).hexdigest()[:8]


def command_words(verb: str, study: str, url: str) -> str:
    """`autotune show 'my study' --storage sqlite:///s.db`: what a user types about a study kept there.

    The storage is left out where it is found without being named; a password in it is not shown.
    """
    words = ["autotune", *verb.split(), study]
    if url != default_storage_url():
        words += ["--storage", redact(url)]
    return shlex.join(words)


def redact(url: str) -> str:
    """The URL as it may be shown: with *** for a password and for parameters that look secret."""
    return _SECRET_PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1:***@", url))


def secrets_of(url: str) -> tuple[str, ...]:
    """The parts of a URL that must not be shown, for taking them out of other texts."""
    credentials = _CREDENTIALS.match(url)
    found = [credentials.group(2)] if credentials else []
    found += [match.group(0)[len(match.group(1)) :] for match in _SECRET_PARAMETER.finditer(url)]
    return tuple(secret for secret in found if secret)
