"""The device memory a configuration may use, and where that figure comes from."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.sizes import format_size
from trials.wire import Device


@dataclass(frozen=True)
class Budget:
    """Device memory for one process on one GPU.

    Attributes:
        size_bytes: the limit.
        origin: where it comes from, in words.
    """

    size_bytes: int
    origin: str


def check_budget_flags(budget_bytes: int | None, gpu_model: str | None) -> None:
    """Raises a UsageError where both flags are given."""
    if budget_bytes is not None and gpu_model is not None:
        raise UsageError("--gpu-budget and --gpu-model both say the budget", "give one of them")


def choose_budget(
    *,
    device: Device,
    device_total_bytes: int,
    device_name: str | None,
    budget_bytes: int | None,
    gpu_model: str | None,
) -> Budget:
    """The budget that the flags and the machine give.

    Args:
        device: where trials run.
        device_total_bytes: memory of one GPU as its driver shows it; on the CPU that of the machine.
        device_name: the GPU's name; None on the CPU.
        budget_bytes: `--gpu-budget`.
        gpu_model: `--gpu-model`.

    Raises:
        UsageError: both flags, an unknown GPU, neither flag where there is no card, or a budget that the
            machine cannot prove for it has less.
    """
    check_budget_flags(budget_bytes, gpu_model)
    if gpu_model is not None:
        from autotune.gpus import find_gpu

        gpu = find_gpu(gpu_model)
        budget = Budget(gpu.memory_bytes, f"as of a {gpu.name}")
    elif budget_bytes is not None:
        budget = Budget(budget_bytes, "as asked")
    elif device == "cpu":
        raise UsageError(
            "no budget, and no GPU whose memory it could be",
            "give --gpu-budget, e.g. 24GB, or --gpu-model, e.g. 'RTX 4090'",
        )
    else:
        return Budget(device_total_bytes, f"the whole {device_name or 'card'}")
    if budget.size_bytes > device_total_bytes:
        what = f"the {device_name}" if device_name else "this machine" if device == "cpu" else "the card"
        raise UsageError(
            f"a budget of {format_size(budget.size_bytes)} cannot be proven here: {what} has "
            f"{format_size(device_total_bytes)}",
            f"give --gpu-budget {device_total_bytes // 2**30}GB or less, or run on a larger machine",
        )
    return budget
