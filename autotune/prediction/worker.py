"""The client of the tracing process: started on the first request, ended with its owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from autotune.prediction.errors import PredictionUnavailable, Refused, WorkerDied

# Kinds of error whose message is written for the user; any other is a library's own.
REFUSAL = "InvalidPoint"
IN_WORDS = frozenset({REFUSAL, "Died"})


class TraceWorker:
    """One tracing process. Not thread-safe but for `kill`: one request at a time.

    Args:
        processes: data-parallel processes that traces pretend.
        niceness: how far it stands back behind other processes.
    """

    def __init__(self, processes: int, niceness: int = 0) -> None:
        self._processes = processes
        self._niceness = niceness
        self._child: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    def send(self, request: dict[str, Any]) -> None:
        """Begin a request; `receive` waits for its answer."""
        child = self._started()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps({**request, "processes": self._processes}) + "\n")
            child.stdin.flush()
        except BrokenPipeError as error:
            raise self._died() from error

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest request.

        Raises:
            PredictionUnavailable: the trial could not be traced.
            WorkerDied: the process ended.
        """
        child = self._started()
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            reason, kind = answer["error"], answer["kind"]
            if kind not in IN_WORDS:
                reason = f"the libraries fail with {kind}: {reason}"
            if kind == REFUSAL:
                raise Refused(f"cannot be built: {reason}")
            raise PredictionUnavailable(
                f"cannot be traced: {reason}", "its memory is only known by measuring it"
            )
        return answer

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """`send` and `receive`."""
        self.send(request)
        return self.receive()

    def start(self) -> None:
        """Start the process, if it does not run."""
        self._started()

    def fileno(self) -> int:
        """The descriptor answers arrive on, for `selectors`."""
        child = self._started()
        assert child.stdout is not None
        return child.stdout.fileno()

    def kill(self) -> None:
        """Let a request in another thread fail at once; that thread, or `close`, does the rest."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin is not None and child.stdout is not None
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            # It lives as long as the process.
            self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
            environment = {
                **os.environ,
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "TOKENIZERS_PARALLELISM": "false",
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
            }
            self._child = subprocess.Popen(
                [sys.executable, "-m", "trials.tracing", str(self._processes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=environment,
                start_new_session=True,
            )
            if self._niceness > os.getpriority(os.PRIO_PROCESS, 0):
                os.setpriority(os.PRIO_PROCESS, self._child.pid, self._niceness)
        return self._child

    def _died(self) -> WorkerDied:
        tail = ""
        if self._log is not None:
            self._log.seek(0)
            lines = self._log.read()[-4000:].strip().splitlines()
            tail = lines[-1] if lines else ""
        self.close()
        return WorkerDied("the tracing process ended unexpectedly", tail)
