"""The GPU, its driver and its free memory; the host's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.cli.doctor.check import Check
from autotune.errors import EnvironmentProblem
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.running import Machine

LITTLE_HOST_BYTES = 8 * 2**30
# More than a desktop and the driver themselves hold.
MUCH_USED_BYTES = 2**30


def device_checks() -> list[Check]:
    """Lines on the GPU where there is one, else that trials run on the CPU."""
    from autotune.running import inspect_machine

    try:
        machine = inspect_machine("cuda")
    except EnvironmentProblem as problem:
        machine = inspect_machine("cpu")
        return [
            Check("gpu", "warn", f"{problem.message}: trials run on the CPU", problem.hint),
            host_memory_check(machine.free_host_bytes),
        ]
    return [*gpu_checks(machine), host_memory_check(machine.free_host_bytes)]


def gpu_checks(machine: Machine) -> list[Check]:
    """The lines of a machine that has a GPU."""
    capability = ".".join(str(part) for part in machine.compute_capability or ())
    memory = format_size(machine.total_bytes)
    gpu = f"{machine.gpus} x {machine.gpu_name}, {memory}, compute capability {capability}"
    checks = [Check("gpu", "ok", gpu), Check("driver", "ok", str(machine.driver))]
    free = machine.total_bytes - machine.used_bytes
    if machine.used_bytes > MUCH_USED_BYTES:
        checks.append(
            Check(
                "gpu memory",
                "warn",
                f"{format_size(free)} free, {format_size(machine.used_bytes)} held by others",
                "end them: they take memory, and speed from what is measured (nvidia-smi lists them)",
            )
        )
    else:
        checks.append(Check("gpu memory", "ok", f"{format_size(free)} free"))
    if not machine.capabilities.bf16:
        checks.append(Check("bf16", "warn", "this GPU has none", "fp16 is tried in its place"))
    return checks


def host_memory_check(free_bytes: int) -> Check:
    """Host memory that is free now."""
    found = f"{format_size(free_bytes)} free"
    if free_bytes < LITTLE_HOST_BYTES:
        return Check("host memory", "warn", found, "offload needs far more; close other programs")
    return Check("host memory", "ok", found)
