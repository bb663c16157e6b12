"""Which process runs a trial, and whether it still lives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import psutil

# The start time of a process is computed from the time of boot, which moves when the clock is set.
START_TOLERANCE_SECONDS = 30.0
# Another host's processes cannot be looked at, and no trial takes this long.
FOREIGN_TRIAL_LIFETIME = timedelta(hours=6)


def this_process() -> dict[str, Any]:
    """The current process, in JSON values: host, pid and start time (seconds since the epoch)."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}


def is_alive(owner: Mapping[str, Any], trial_started_at: datetime, now: datetime) -> bool:
    """Whether the process that began a trial can still end it.

    Args:
        owner: what `this_process` said when the trial began.
        trial_started_at: aware.
        now: aware.
    """
    if owner["host"] != socket.gethostname():
        return now - trial_started_at < FOREIGN_TRIAL_LIFETIME
    try:
        process = psutil.Process(owner["pid"])
        started, status = process.create_time(), process.status()
    except psutil.NoSuchProcess:
        return False
    # A zombie was killed and only waits for its parent to notice.
    return bool(status != psutil.STATUS_ZOMBIE and abs(started - owner["started"]) < START_TOLERANCE_SECONDS)
