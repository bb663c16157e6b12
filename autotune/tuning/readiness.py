"""Before the first trial: the process that runs trials, what it knows of the model, compiled operators, and
the machine's share of device memory outside PyTorch's allocator. None of it is charged to a trial.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import EnvironmentProblem
from autotune.tuning.stages import Stage, enumerate_stages
from autotune.tuning.task import Task
from trials.wire import Point

if TYPE_CHECKING:
    from autotune.running import OutsideShare, TrialRunner
    from autotune.space import Setting
    from autotune.throughput import Rates

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ready:
    """What trials need beside their point.

    Attributes:
        task: with the points that the installed libraries can run for this model.
        outside: the machine's shares outside the allocator.
        torch_adam: whether AdamW must be torch's.
        rates: what the machine does per second.
    """

    task: Task
    outside: OutsideShare
    torch_adam: bool
    rates: Rates | None = None


def get_ready(task: Task, runner: TrialRunner, data_folder: Path, log_folder: Path, say: Say) -> Ready:
    """Start the process, ask it about the model, compile operators and measure the machine.

    Args:
        task: what will be tuned.
        runner: not yet started.
        data_folder: where the machine's figures are kept.
        log_folder: existing folder for logs.
        say: told what takes time, and what had to be left out.

    Raises:
        EnvironmentProblem: the process does not start, or an operator that every point needs cannot be built.
        UsageError: no point is left, or the model has no modules of the names that were asked for.
    """
    from autotune.running import OutsideShare, machine_rates, needed_ops
    from autotune.throughput import probed_rates
    from autotune.tuning.predicting import rates_of_machine

    setting = _with_model_facts(task.setting, runner.inspect_model(task.model, task.request.lora_targets))
    stages = enumerate_stages(task.stages, setting)
    every_point = [point for stage in stages for point in stage.points]
    needed = needed_ops(every_point, task.machine)
    if task.machine.host_compiler:
        failed = dict(runner.prepare(needed, say))
    else:
        failed = {
            "cpu_adam": "there is no C++ compiler (g++ and ninja)",
            "async_io": "there is no C++ compiler",
        }
    for name in ("shared_memory_communication", "fused_adam"):
        if name in failed:
            say(f"DeepSpeed's {name} cannot be built: {failed[name]}")
    stages = _without_unbuilt(stages, failed, say)
    task = dataclasses.replace(task, setting=setting, stages=stages)
    outside = OutsideShare(task.machine, data_folder)
    outside.measure(runner, [point for stage in stages for point in stage.points], log_folder, say)
    has_cpu_adam = "cpu_adam" in needed and "cpu_adam" not in failed
    probed = machine_rates(task.machine, data_folder, runner, say, has_cpu_adam=has_cpu_adam)
    return Ready(
        task,
        outside,
        torch_adam=task.machine.torch_adam or "fused_adam" in failed,
        rates=probed_rates(probed, rates_of_machine(task.machine)),
    )


def _with_model_facts(setting: Setting, facts: dict[str, Any]) -> Setting:
    capabilities = dataclasses.replace(
        setting.capabilities,
        liger=setting.capabilities.liger and bool(facts["liger"]),
        refused_attentions=tuple(facts["refused_attentions"]),
    )
    return dataclasses.replace(setting, capabilities=capabilities, num_layers=int(facts["layers"]))


def _without_unbuilt(stages: tuple[Stage, ...], failed: dict[str, str], say: Say) -> tuple[Stage, ...]:
    """The stages without the points that need an operator that could not be built."""
    kept = []
    for stage in stages:
        points = tuple(point for point in stage.points if not _needs(point, failed))
        kept.append(dataclasses.replace(stage, points=points))
    lost = sum(len(a.points) - len(b.points) for a, b in zip(stages, kept, strict=True))
    if lost:
        reason = "; ".join(failed[name] for name in ("cpu_adam", "async_io") if name in failed)
        if not any(stage.points for stage in kept):
            raise EnvironmentProblem(f"DeepSpeed's operators for offload cannot be built: {reason}")
        say(f"{lost:,} points with offload are left out: {reason}")
    return tuple(stage for stage in kept if stage.points)


def _needs(point: Point, failed: dict[str, str]) -> bool:
    return (point.offload != "none" and "cpu_adam" in failed) or (
        point.offload.startswith("nvme_") and "async_io" in failed
    )
