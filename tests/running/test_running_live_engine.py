"""Points measured one after another on one engine: as in a process of their own; no failure is carried on."""

from __future__ import annotations

import math
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

from autotune.running.environment import trial_environment
from trials.ds_config import deepspeed_config
from trials.wire import Outcome, Phase, Point, TrialResult

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MIB = 1 << 20
LARGE: dict[str, Any] = {"micro_batch_size": 8}
SMALL: dict[str, Any] = {
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 2,
    "checkpoint_fraction": 1.0,
}
SHORT: dict[str, Any] = {"seq_len": 256, "warmup_steps": 1, "min_timed_steps": 1, "max_timed_steps": 1}


@pytest.fixture(autouse=True)
def nothing_waits(trials: Trials) -> Iterator[None]:
    """Each test begins and ends without a live engine."""
    trials.runner.release()
    yield
    trials.runner.release()
    assert trials.server().children(recursive=True) == []


def run(trials: Trials, point: Point, **values: Any) -> TrialResult:
    return trials.run(point, **{"fresh": False, **SHORT, **values})


def waiting(trials: Trials) -> list[psutil.Process]:
    return trials.server().children()


@pytest.mark.parametrize(
    "build",
    [
        {},
        {"zero_stage": 1},
        {"zero_stage": 2, "offload": "optimizer"},
        {"zero_stage": 3},
        {"zero_stage": 3, "offload": "optimizer+parameters", "lora_rank": 8, "quantization": "nf4"},
        {"lora_rank": 8, "optimizer": "adamw8bit"},
    ],
    ids=str,
)
def test_a_reused_engine_measures_what_a_fresh_one_does(
    offloading_trials: Trials, build: dict[str, Any]
) -> None:
    trials = offloading_trials
    large, small = Point(**build, **LARGE), Point(**build, **SMALL)
    first = run(trials, large)
    reused = run(trials, small)
    assert trials.phases() == ["first_step", "later_step"]
    fresh = run(trials, small, fresh=True)

    assert [first.build, reused.build, fresh.build] == ["fresh", "reused", "fresh"]
    assert all(one.outcome is Outcome.OK for one in (first, reused, fresh)), reused.message
    assert len(reused.losses) == 2 and reused.losses[0] == pytest.approx(math.log(4096), abs=0.5)
    # What the engine is told is what a fresh one would have been started with.
    assert reused.ds_config == fresh.ds_config
    assert reused.ds_config == deepspeed_config(
        small,
        trainable_parameters=reused.trainable_parameters or 0,
        largest_parameter=4096 * 256,
        device="cpu",
        torch_adam=True,
    )
    assert (reused.trainable_parameters, reused.lora_targets) == (
        fresh.trainable_parameters,
        fresh.lora_targets,
    )
    # Setting up was measured when it was done, and shows only as what the build needs.
    assert reused.phase_peak_allocated_bytes.keys() == {"first_step", "later_step"}
    assert reused.setup_peak_allocated_bytes == first.setup_peak_allocated_bytes
    # What the large point left would be far more than oneDNN keeps for its shapes.
    ours, theirs = reused.peak_allocated_bytes or 0, fresh.peak_allocated_bytes or 0
    assert 0.92 * theirs < ours < theirs + 48 * MIB < (first.peak_allocated_bytes or 0) - 32 * MIB
    assert reused.required_device_bytes is not None
    assert reused.required_device_bytes >= max(ours, first.setup_peak_allocated_bytes or 0)
    assert reused.setup_seconds is not None and reused.setup_seconds < 0.5 * (fresh.setup_seconds or 0)


def test_two_processes_are_reused_together(trials: Trials) -> None:
    first = run(trials, Point(zero_stage=2, micro_batch_size=2), processes=2)
    pids = {process.pid for process in waiting(trials)}
    second = run(trials, Point(zero_stage=2, **SMALL), processes=2)
    assert [first.outcome, second.outcome] == [Outcome.OK, Outcome.OK], second.message
    assert [first.build, second.build] == ["fresh", "reused"]
    assert len(pids) == 2 and {process.pid for process in waiting(trials)} == pids
    assert second.ds_config is not None and second.ds_config["train_batch_size"] == 4


@pytest.mark.parametrize("build", [{}, {"zero_stage": 2}, {"zero_stage": 3}], ids=str)
def test_after_an_out_of_memory_the_engine_measures_on(trials: Trials, build: dict[str, Any]) -> None:
    large, small = Point(**build, micro_batch_size=16), Point(**build, micro_batch_size=1)
    enough = run(trials, small, fresh=True).device_bytes or 0
    limited: dict[str, Any] = {"budget_bytes": enough + 80 * MIB}

    failed = run(trials, large, **limited)
    assert failed.outcome is Outcome.OOM, failed.message
    assert failed.phase in (Phase.FORWARD, Phase.BACKWARD, Phase.FIRST_STEP)
    good = run(trials, small, **limited)
    assert good.outcome is Outcome.OK, good.message
    assert good.build == "reused"
    assert good.device_bytes is not None and good.device_bytes <= limited["budget_bytes"]
    # The limit is as real as before.
    assert run(trials, large, **limited).outcome is Outcome.OOM
    assert run(trials, small, **limited).outcome is Outcome.OK


def test_each_point_has_the_limit_it_is_given(trials: Trials) -> None:
    free = run(trials, Point(**LARGE))
    assert free.peak_allocated_bytes is not None and free.setup_peak_allocated_bytes is not None
    too_little = run(trials, Point(**LARGE), budget_bytes=int(0.8 * free.peak_allocated_bytes))
    assert too_little.outcome is Outcome.OOM
    enough = run(trials, Point(**LARGE), budget_bytes=int(1.5 * free.peak_allocated_bytes))
    assert (enough.outcome, enough.build) == (Outcome.OK, "reused")
    # An engine that could not have been built under the new limit is no answer to it.
    unbuildable = run(trials, Point(), budget_bytes=int(0.8 * free.setup_peak_allocated_bytes))
    assert (unbuildable.outcome, unbuildable.build) == (Outcome.OOM, "fresh")
    assert unbuildable.phase in (Phase.LOAD, Phase.START)


@pytest.mark.parametrize(
    "values",
    [
        {"point": Point(zero_stage=1)},
        {"point": Point(), "seq_len": 128},
        {"point": Point(), "model": "tiny-qwen2"},
        {"point": Point(), "confirm": True},
        {"point": Point(), "fresh": True},
    ],
    ids=str,
)
def test_whatever_a_live_engine_cannot_change_has_a_process_of_its_own(
    trials: Trials, values: dict[str, Any]
) -> None:
    run(trials, Point(**SMALL))
    [before] = waiting(trials)
    result = run(trials, **values)
    assert (result.outcome, result.build) == (Outcome.OK, "fresh")
    assert not before.is_running()


def test_a_process_that_dies_while_it_waits_is_nobodys_failure(trials: Trials) -> None:
    run(trials, Point(**SMALL))
    [process] = waiting(trials)
    process.kill()
    result = run(trials, Point())
    assert (result.outcome, result.build) == (Outcome.OK, "fresh")
    process.wait(timeout=5)


def test_a_reused_process_that_dies_is_no_verdict_on_the_point(trials: Trials) -> None:
    run(trials, Point(**SMALL))
    [process] = waiting(trials)

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "step" and process.is_running():
            process.kill()
            process.wait(timeout=5)

    result = run(trials, Point(), on_event=kill, max_timed_steps=500, measure_seconds=3.0, target_spread=0.0)
    assert (result.outcome, result.build) == (Outcome.OK, "fresh")


def test_a_time_out_ends_a_reused_process_and_counts(trials: Trials) -> None:
    run(trials, Point(**SMALL))
    endless = {"max_timed_steps": 100_000, "measure_seconds": 600.0, "target_spread": 0.0}
    result = run(trials, Point(), timeout_seconds=3.0, **endless)
    assert result.outcome is Outcome.TIMEOUT and result.phase in (Phase.FIRST_STEP, Phase.LATER_STEP)
    assert waiting(trials) == []


SERVE = """
import sys
import trials.server
trials.server.IDLE_SECONDS = float(sys.argv.pop())
trials.server.main()
"""


@pytest.mark.parametrize("ending", ["nobody asks", "SIGKILL"])
def test_a_live_engine_does_not_outlast_its_use(trials: Trials, tmp_path: Path, ending: str) -> None:
    import json

    idle_seconds = "1.0" if ending == "nobody asks" else "600.0"
    spec = trials.spec(Point(), **SHORT)
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, "cpu", "llama", idle_seconds],
        env=trial_environment("cpu", os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        request = {"request": "trial", "spec": spec.model_dump(mode="json"), "fresh": False}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        next(line for line in server.stdout if json.loads(line)["event"] == "done")
        [child] = psutil.Process(server.pid).children()
        if ending == "SIGKILL":
            server.kill()
        deadline = time.monotonic() + 20
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if ending == "nobody asks":
            # The pre-warmed process serves on.
            assert server.poll() is None
            server.kill()
