"""What the machine does per second is measured once, and kept."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
from machines import machine
from trial_runs import Trials

from autotune.running import Machine, TrialRunner, inspect_machine, machine_rates
from autotune.running.probing import rates_key
from autotune.throughput import CPU_RATES, Rates, probed_rates, rates_of

CPU = machine("cpu")


def test_every_rate_of_a_cpu_is_measured_and_kept_for_the_next_time(trials: Trials, tmp_path: Path) -> None:
    said: list[str] = []
    measured = machine_rates(CPU, tmp_path, trials.runner, said.append)

    known = {field.name for field in dataclasses.fields(Rates)}
    assert set(measured) <= known | {"cpu_adam_stand_in"}
    assert {"matmul_flops", "memory_bytes", "host_bytes", "launch_seconds", "cpu_adam_parameters"} <= set(
        measured
    )
    # Any machine that runs this: a gigaflop to a petaflop, a microsecond to a tenth of a second.
    assert 1e9 < measured["matmul_flops"] < 1e15
    assert 1e8 < measured["memory_bytes"] < 1e13
    assert 1e-6 < measured["launch_seconds"] < 0.1
    assert said == ["measuring what this machine does per second (a few seconds, once)"]
    assert probed_rates(measured, CPU_RATES).matmul_flops == measured["matmul_flops"]

    # A runner that could not start is not asked again.
    nowhere = TrialRunner("cpu", model_type=None, log_dir=tmp_path / "nowhere")
    assert machine_rates(CPU, tmp_path, nowhere, said.append) == measured
    assert len(said) == 1
    assert json.loads((tmp_path / "machine.json").read_text())[rates_key(CPU)] == measured


@pytest.mark.parametrize(
    ("here", "kept", "has_cpu_adam", "again"),
    [
        (CPU, {"launch_seconds": 1e-5, "cpu_adam_stand_in": 1.0}, True, True),
        (CPU, {"launch_seconds": 1e-5, "cpu_adam_stand_in": 1.0}, False, False),
        (CPU, {"launch_seconds": 1e-5, "cpu_adam_stand_in": 0.0}, True, False),
        (CPU, {"launch_seconds": 1e-5}, True, False),
    ],
)
def test_what_can_be_measured_better_by_now_is_measured_again(
    trials: Trials, tmp_path: Path, here: Machine, kept: dict[str, float], has_cpu_adam: bool, again: bool
) -> None:
    (tmp_path / "machine.json").write_text(json.dumps({rates_key(here): kept}))
    found = machine_rates(here, tmp_path, trials.runner, lambda text: None, has_cpu_adam=has_cpu_adam)
    assert (dict(found) != kept) is again


def test_rates_are_kept_per_machine() -> None:
    keys = {
        rates_key(machine()),
        rates_key(machine(gpu_name="NVIDIA L4")),
        rates_key(machine(driver="1")),
        rates_key(CPU),
    }
    assert len(keys) == 4


@pytest.mark.gpu
@pytest.mark.slow
def test_a_gpu_is_measured_in_seconds_and_does_about_what_its_maker_says(tmp_path: Path) -> None:
    here = inspect_machine("cuda")
    with TrialRunner("cuda", model_type="llama", log_dir=tmp_path) as runner:
        runner.prepare([], lambda text: None)
        began = time.monotonic()
        measured = machine_rates(here, tmp_path, runner, lambda text: None)
        assert time.monotonic() - began < 30
    published = rates_of(here.gpu_name or "")
    # Those of the table are published peaks times what is usually reached.
    assert 0.5 * published.matmul_flops < measured["matmul_flops"] < 1.45 * published.matmul_flops
    assert 0.6 * published.memory_bytes < measured["memory_bytes"] < 1.2 * published.memory_bytes
    assert 2e9 < measured["host_bytes"] < 1.3 * published.host_bytes
    assert 2e-6 < measured["launch_seconds"] < 5e-4
    assert measured["fp32_matmul_flops"] < measured["matmul_flops"]


def test_a_second_probe_that_fails_takes_nothing_from_the_first(tmp_path: Path) -> None:
    class Failing(TrialRunner):
        def probe_machine(self) -> dict[str, object]:
            return {"error": "out of order"}

    kept = {"launch_seconds": 1e-5, "cpu_adam_stand_in": 1.0}
    (tmp_path / "machine.json").write_text(json.dumps({rates_key(CPU): kept}))
    said: list[str] = []
    runner = Failing("cpu", model_type=None, log_dir=tmp_path)
    assert machine_rates(CPU, tmp_path, runner, said.append, has_cpu_adam=True) == kept
    assert "what was measured before serves instead" in said[-1]
    assert machine_rates(machine("cpu", versions={"torch": "1"}), tmp_path, runner, said.append) == {}
    assert "published figures serve instead" in said[-1]
