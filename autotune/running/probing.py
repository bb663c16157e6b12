"""The machine's rates, probed once and kept beside its share of memory outside the allocator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.running.kept_json import KeptJson
from autotune.running.machine import Machine
from autotune.running.runner import TrialRunner


def machine_rates(
    machine: Machine,
    folder: Path,
    runner: TrialRunner,
    on_message: Callable[[str], None],
    *,
    has_cpu_adam: bool = False,
) -> Mapping[str, Any]:
    """What the probe measured on this machine, now or earlier.

    Args:
        machine: kept per GPU, driver and torch; a CPU's per number of cores and torch.
        folder: existing folder for the file.
        runner: where the probe runs, if it has to.
        on_message: told what is measured, and when it cannot be.
        has_cpu_adam: whether DeepSpeed's Adam for the host is compiled by now. What an earlier call measured
            of torch's, where that one stood in for it, is then measured again.

    Returns:
        Rates by name; none where the probe failed.
    """
    kept, key = KeptJson(folder / "machine.json"), rates_key(machine)
    known = kept.read().get(key)
    if isinstance(known, dict) and known and not _is_outdated(known, has_cpu_adam):
        return known
    on_message("measuring what this machine does per second (a few seconds, once)")
    measured = runner.probe_machine()
    if "error" in measured:
        instead = "what was measured before serves" if known else "published figures serve"
        on_message(f"it could not be measured ({measured['error']}): {instead} instead")
        return known if isinstance(known, dict) else {}
    kept.put(key, measured)
    return measured


def _is_outdated(known: Mapping[str, Any], has_cpu_adam: bool) -> bool:
    """Whether more can be measured now than was: see `trials.probe`."""
    return has_cpu_adam and bool(known.get("cpu_adam_stand_in"))


def rates_key(machine: Machine) -> str:
    """What the rates hold for."""
    torch = f"torch {machine.versions.get('torch')}"
    if machine.device == "cpu":
        return f"rates | cpu, {len(os.sched_getaffinity(0))} cores | {torch}"
    return f"rates | {machine.gpu_name} | driver {machine.driver} | {torch}"
