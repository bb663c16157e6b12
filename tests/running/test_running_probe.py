"""What the machine does per second is measured once, and kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from machines import machine
from trial_runs import Trials

from autotune.running import TrialRunner, machine_rates
from autotune.running.probing import rates_key
from autotune.throughput import CPU_RATES, Rates, probed_rates

CPU = machine("cpu")


def test_every_rate_of_a_cpu_is_measured_and_kept_for_the_next_time(trials: Trials, tmp_path: Path) -> None:
    said: list[str] = []
    measured = machine_rates(CPU, tmp_path, trials.runner, said.append)

    known = {field.name for field in dataclasses.fields(Rates)}
    assert set(measured) <= known
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


def test_rates_are_kept_per_machine() -> None:
    keys = {
        rates_key(machine()),
        rates_key(machine(gpu_name="NVIDIA L4")),
        rates_key(machine(driver="1")),
        rates_key(CPU),
    }
    assert len(keys) == 4
