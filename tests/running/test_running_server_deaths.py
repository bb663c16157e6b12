"""The process that trials are forked from dies, hangs or is left alone: no study crashes, none stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from trial_runs import Trials

from autotune.errors import EnvironmentProblem
from autotune.running import runner as runner_module
from autotune.running.environment import trial_environment
from autotune.running.runner import TrialRunner
from trials.wire import Outcome, Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LONG: dict[str, Any] = {"max_timed_steps": 100_000, "measure_seconds": 600.0, "target_spread": 0.0}

CONTROLLER = """
import sys
from pathlib import Path
from autotune.running.runner import TrialRunner
from trial_runs import Trials
folder = Path(sys.argv[1])
with TrialRunner("cpu", model_type="llama", log_dir=folder) as runner:
    trials = Trials(runner, folder, "cpu", ())
    def tell(event):
        if event.get("index") == 1:
            told = [trials.server().pid, *[child.pid for child in trials.server().children()]]
            print(*told, file=sys.__stderr__, flush=True)
    long = {"max_timed_steps": 100000, "measure_seconds": 600.0, "target_spread": 0.0}
    trials.run(on_event=tell, timeout_seconds=600, **long)
"""


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Trials whose pre-warmed process may be ended."""
    folder = tmp_path_factory.mktemp("mortal")
    with TrialRunner("cpu", model_type="llama", log_dir=folder) as runner:
        yield Trials(runner, folder, "cpu", ())


def gone(pids: list[int], within_seconds: float) -> bool:
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if psutil.pid_exists(pid)]
        if all(
            psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in alive if psutil.pid_exists(pid)
        ):
            return True
        time.sleep(0.05)
    return False


def test_a_killed_server_is_a_crash_and_takes_its_trial_along_and_the_next_trial_has_a_new_one(
    mortal: Trials,
) -> None:
    seen: list[int] = []

    def kill(event: dict[str, Any]) -> None:
        if event.get("index") == 1:
            server = mortal.server()
            seen.extend([server.pid, *(child.pid for child in server.children())])
            server.kill()

    result = mortal.run(on_event=kill, **LONG)
    assert result.outcome is Outcome.CRASH
    assert result.phase in (Phase.FIRST_STEP, Phase.LATER_STEP)
    assert "SIGKILL" in result.message
    assert len(seen) == 2 and gone(seen, within_seconds=5)
    assert mortal.run().outcome is Outcome.OK
    assert mortal.server().pid not in seen


def test_a_server_that_does_not_answer_is_a_timeout(mortal: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "GRACE_SECONDS", 1.0)
    seen: list[int] = []

    def suspend(event: dict[str, Any]) -> None:
        if event.get("index") == 1:
            server = mortal.server()
            seen.extend([server.pid, *(child.pid for child in server.children())])
            server.suspend()

    result = mortal.run(on_event=suspend, timeout_seconds=3.0, **LONG)
    assert result.outcome is Outcome.TIMEOUT
    assert "does not answer" in result.message
    assert len(seen) == 2 and gone(seen, within_seconds=5)


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM"])
def test_when_the_controller_is_killed_nothing_of_it_lives_on(tmp_path: Path, signal_name: str) -> None:
    import signal

    environment = trial_environment("cpu", os.environ)
    environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path)],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as controller:
        assert controller.stderr is not None
        pids = next(
            [int(word) for word in line.split()]
            for line in controller.stderr
            if line.replace(" ", "").strip().isdigit()
        )
        assert len(pids) == 2 and not gone(pids, within_seconds=0.2)
        controller.send_signal(getattr(signal, signal_name))
        controller.wait(timeout=20)
        assert gone(pids, within_seconds=10)


def test_closing_ends_the_process_and_closing_twice_is_nothing(tmp_path: Path) -> None:
    runner = TrialRunner("cpu", model_type=None, log_dir=tmp_path)
    runner.close()
    process = runner._process
    assert process is None
    assert not list(tmp_path.iterdir())


def test_a_process_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A torch that cannot be imported, found before the real one.
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file')\n"
    )
    real = trial_environment

    def broken(device: Any, environment: Any) -> dict[str, str]:
        result = real(device, environment)
        result["PYTHONPATH"] = os.pathsep.join([str(tmp_path), result["PYTHONPATH"]])
        return result

    monkeypatch.setattr(runner_module, "trial_environment", broken)
    with (
        TrialRunner("cpu", model_type=None, log_dir=tmp_path) as runner,
        pytest.raises(EnvironmentProblem, match="libcudart"),
    ):
        runner.prepare((), lambda message: None)
