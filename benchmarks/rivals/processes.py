"""Runs a contender in a process group of its own, and ends it with all its children at its time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

# An interrupted `autotune run` prints what it has found; nothing else is given the time to go on.
INTERRUPT_GRACE_SECONDS = 10.0
TERMINATE_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        cut: whether the limit ended it.
        returncode: of the command; negative where a signal ended it.
        wall_seconds: until it ended or was told to.
        stdout: file with its standard output.
        stderr: file with its standard error.
    """

    cut: bool
    returncode: int
    wall_seconds: float
    stdout: Path
    stderr: Path

    def last_words(self) -> str:
        """The last line of its standard error, or else of its output."""
        for path in (self.stderr, self.stdout):
            lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1].strip()[:300]
        return f"no words, exit code {self.returncode}"


def run_limited(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], limit_seconds: float
) -> Ended:
    """Run a command until it ends or the limit is reached; no child of it is left afterwards.

    Args:
        command: what to run.
        folder: existing; its working folder, and where `stdout` and `stderr` are written.
        environment: the whole of it.
        limit_seconds: from the start.
    """
    stdout, stderr = folder / "stdout", folder / "stderr"
    begun = time.monotonic()
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        cut = False
        wall_seconds = 0.0
        try:
            process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            cut = True
        finally:
            wall_seconds = time.monotonic() - begun
            end_tree(process)
    return Ended(cut, process.returncode, wall_seconds, stdout, stderr)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """End a command and its descendants, also those that opened sessions of their own."""
    family = _descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_GRACE_SECONDS)
    # The group of a command that ended by itself can hold orphans that no longer count as its descendants.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)
        _, family = psutil.wait_procs(family, timeout=TERMINATE_GRACE_SECONDS)
        if number is signal.SIGTERM and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERMINATE_GRACE_SECONDS)
    process.wait()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
