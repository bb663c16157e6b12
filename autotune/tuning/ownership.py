"""Which process is tuning a study; two on one machine would measure each other's noise."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.study import Study

NOTE = "owner"


@dataclass(frozen=True)
class Owner:
    """A process that tunes a study.

    Attributes:
        host: the machine's name.
        pid: the process there.
        started: when that process began, seconds since the epoch; tells it from a later one.
    """

    host: str
    pid: int
    started: float

    @classmethod
    def this_process(cls) -> Self:
        """The calling process."""
        import psutil

        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    def is_running(self) -> bool | None:
        """Whether it is alive; None where that cannot be seen from this machine."""
        import psutil

        if self.host != socket.gethostname():
            return None
        try:
            return bool(abs(psutil.Process(self.pid).create_time() - self.started) < 1.0)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


def owner_of(study: Study) -> Owner | None:
    """The process that last took the study and did not give it back."""
    note: Any = study.note(NOTE)
    return Owner(**note) if note else None


def take(study: Study) -> None:
    """Make this process the study's owner.

    Raises:
        UsageError: another live process of this machine tunes it.
    """
    owner = owner_of(study)
    mine = Owner.this_process()
    if owner is not None and owner != mine and owner.is_running():
        raise UsageError(
            f"the study {study.name} is being tuned by process {owner.pid}",
            f"wait for it, or give another --study; '{study.command('status --study')}' shows how it stands",
        )
    study.set_note(NOTE, asdict(mine))


def give_back(study: Study) -> None:
    """Say that this process does not tune it any more."""
    if owner_of(study) == Owner.this_process():
        study.set_note(NOTE, None)
