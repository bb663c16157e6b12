"""The command line as its users start it: a process of its own, with a data folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def clean_environment(data_home: Path) -> dict[str, str]:
    """The environment without anything that would change what autotune does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_")}
    return kept | {"XDG_DATA_HOME": str(data_home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


class InProcess:
    """Runs the command line in this process, which is quicker where no process of its own is needed.

    Args:
        monkeypatch: pytest's; the working folder is the caller's affair.
        capsys: pytest's.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Exit code and streams; keyword arguments are added to the environment."""
        with self._monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            code = main(args)
        out, err = self._capsys.readouterr()
        return subprocess.CompletedProcess(list(args), code, out, err)


class Autotune:
    """Runs `python -m autotune ARGS` in one folder.

    Args:
        folder: where it runs; the user's data folder is `data` in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *args: str) -> list[str]:
        """The words of the command line."""
        return [sys.executable, "-m", "autotune", *args]

    def __call__(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The finished process; keyword arguments are added to its environment."""
        return subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=clean_environment(self.folder / "data") | environment,
            capture_output=True,
            text=True,
            timeout=280,
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        """The process while it runs, leader of its own process group."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env=clean_environment(self.folder / "data"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
