from __future__ import annotations

from collections.abc import Iterator

import pytest
from trial_runs import CPU_OPS, Trials

from autotune.running.runner import TrialRunner


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Trials on the CPU, all in one pre-warmed process that no test may end."""
    folder = tmp_path_factory.mktemp("trials")
    with TrialRunner("cpu", model_type="llama", log_dir=folder) as runner:
        yield Trials(runner, folder, "cpu", CPU_OPS)


@pytest.fixture
def offloading_trials(trials: Trials) -> Trials:
    """Trials that may offload the optimizer."""
    if "cpu_adam" in trials.missing_ops:
        pytest.skip(f"DeepSpeed's cpu_adam cannot be built here: {trials.missing_ops['cpu_adam']}")
    return trials
