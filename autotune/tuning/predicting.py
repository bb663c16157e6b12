"""What a tuning needs for its predictions: the right GPU, the machine's figures, the tracing processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.prediction.pool import WorkerPool
    from autotune.running import Machine
    from autotune.throughput import Rates
    from autotune.tuning.foresight import Foresight
    from autotune.tuning.observer import Observer
    from autotune.tuning.readiness import Ready
    from autotune.tuning.task import Task

MACHINE_FILE = "machine.json"
# Tracing goes on while trials are timed; the scheduler lets those go first.
STANDS_BACK = 10


@contextmanager
def tracing_processes(task: Task) -> Iterator[WorkerPool | None]:
    """Processes that load what predictions need while the machine is made ready; None on the CPU."""
    if task.device == "cpu":
        yield None
        return
    from autotune.prediction.pool import WorkerPool
    from autotune.prediction.predictor import worker_count

    pool = WorkerPool(task.request.gpus, worker_count(), niceness=STANDS_BACK)
    pool.start()
    try:
        yield pool
    finally:
        pool.close()


@contextmanager
def foresight_of(
    ready: Ready, data_folder: Path, observer: Observer, pool: WorkerPool | None = None
) -> Iterator[Foresight | None]:
    """The predictions for what is ready to be tuned; None on the CPU, whose budget counts other things.

    Args:
        ready: what will be tuned, and the machine's figures.
        data_folder: where what trials taught is kept.
        observer: told what takes time.
        pool: tracing processes that run already; None: they are started when they are needed.
    """
    task = ready.task
    if task.device == "cpu":
        yield None
        return
    from autotune.planning.outlook import Budgets
    from autotune.prediction import Predictor
    from autotune.prediction.checked import version_warning
    from autotune.running.kept_json import KeptJson
    from autotune.tuning.corrections import Corrections
    from autotune.tuning.foreseen import Foreseen
    from autotune.tuning.foresight import Foresight

    warning = version_warning(task.machine.versions)
    if warning:
        observer.say(f"warning: {warning}")
    about = Foreseen(
        model=task.model,
        seq_len=task.seq_len,
        lora_targets=task.request.lora_targets,
        processes=task.request.gpus,
        budgets=Budgets(task.budget.size_bytes, task.host_budget_bytes // task.request.gpus),
        rates=ready.rates or rates_of_machine(task.machine),
    )
    corrections = Corrections(
        KeptJson(data_folder / MACHINE_FILE),
        corrections_key(task.machine, str(task.model.config.get("model_type"))),
        task.inputs.model_digest,
    )
    gpu = capability_of(task.machine)
    with Predictor(gpu=gpu, torch_adam=ready.torch_adam, pool=pool) as predictor:
        foresight = Foresight(about, predictor, ready.outside, corrections, observer.say)
        try:
            yield foresight
        finally:
            foresight.close()


def capability_of(machine: Machine) -> str:
    """The GPU as a `Predictor` takes it: `9.0`."""
    assert machine.compute_capability is not None, "there is a GPU"
    return ".".join(str(part) for part in machine.compute_capability)


def rates_of_machine(machine: Machine) -> Rates:
    """What the machine does per second as far as the table says; of a GPU in no table, what an H200 does."""
    from autotune.throughput import CPU_RATES, Rates, rates_of

    if machine.device == "cpu":
        return CPU_RATES
    try:
        return rates_of(machine.gpu_name or "")
    except UsageError:
        # The first trials tell how this one differs.
        return Rates()


def corrections_key(machine: Machine, model_type: str) -> str:
    """What corrections hold for: the GPU, the libraries' versions and the model's type."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(machine.versions.items()))
    return f"predictions | {machine.gpu_name} | {versions} | {model_type}"
