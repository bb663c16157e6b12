"""From the request to what will be tuned: model, machine, budget, points and the study's identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.errors import EnvironmentProblem, UsageError
from autotune.sizes import format_size
from autotune.tuning.budget import Budget, check_budget_flags, choose_budget
from autotune.tuning.request import Request
from autotune.tuning.stages import Stage, enumerate_stages, stages_of
from trials.wire import Device, ModelSpec

if TYPE_CHECKING:
    from autotune.running import Machine
    from autotune.space import Setting
    from autotune.study import StudyInputs

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """Everything that is decided before the first process starts.

    Attributes:
        request: as the user gave it.
        model: the model to build.
        machine: what it runs on.
        budget: device memory for one process.
        host_budget_bytes: host memory for a trial.
        seq_len: tokens per sequence.
        setting: what is fixed while the space is searched.
        stages: the points, in the order in which methods are tried.
        inputs: what identifies the study.
    """

    request: Request
    model: ModelSpec
    machine: Machine
    budget: Budget
    host_budget_bytes: int
    seq_len: int
    setting: Setting
    stages: tuple[Stage, ...]
    inputs: StudyInputs

    @property
    def device(self) -> Device:
        """Where trials run."""
        return self.machine.device


def prepare_task(request: Request, say: Say) -> Task:
    """Resolve a request; what is wrong in it is found before anything heavy starts.

    Args:
        request: what the user asked for.
        say: called with each decision the user should know of.

    Raises:
        UsageError: an unknown model, GPU or space, an impossible budget, length or space.
        EnvironmentProblem: no GPU where one was asked for, or a machine that cannot run trials.
    """
    from autotune.models import model_limits, resolve_with_notes
    from autotune.space import Setting

    check_budget_flags(request.gpu_budget_bytes, request.gpu_model)
    model, notes = resolve_with_notes(request.model, weights=request.load_weights)
    for note in notes:
        say(f"note: {note}")
    limits = model_limits(model)
    seq_len = _sequence_length(request, limits.max_seq_len, limits.default_seq_len)
    spaces = stages_of(request)
    machine = _machine(request, say)
    budget = choose_budget(
        device=machine.device,
        device_total_bytes=machine.total_bytes,
        device_name=machine.gpu_name,
        budget_bytes=request.gpu_budget_bytes,
        gpu_model=request.gpu_model,
    )
    if request.gpu_budget_bytes is None:
        say(f"the budget is {format_size(budget.size_bytes)}, {budget.origin}")
    setting = Setting(
        method=request.method,
        global_batch=request.global_batch,
        exact_global_batch=request.exact_global_batch,
        gpus=request.gpus,
        min_rank=request.min_rank,
        capabilities=machine.capabilities,
        trainer=request.trainer,
        num_layers=limits.num_layers,
    )
    return Task(
        request=request,
        model=model,
        machine=machine,
        budget=budget,
        host_budget_bytes=request.host_budget_bytes or machine.free_host_bytes,
        seq_len=seq_len,
        setting=setting,
        stages=enumerate_stages(spaces, setting),
        inputs=_inputs(request, model, machine, budget, seq_len, spaces),
    )


def model_digest(model: ModelSpec) -> str:
    """A short fingerprint of what is built: the configuration and where weights come from, not the name."""
    text = json.dumps([model.config, model.weights], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _inputs(
    request: Request,
    model: ModelSpec,
    machine: Machine,
    budget: Budget,
    seq_len: int,
    spaces: tuple[Stage, ...],
) -> StudyInputs:
    from autotune.study import StudyInputs

    names = dict.fromkeys(stage.space.name for stage in spaces)
    digests = list(dict.fromkeys(stage.space.digest for stage in spaces))
    joined = hashlib.sha256("+".join(digests).encode()).hexdigest()[:16]
    return StudyInputs(
        model=model.name,
        model_digest=model_digest(model),
        method=request.method,
        seq_len=seq_len,
        global_batch=request.global_batch,
        exact_global_batch=request.exact_global_batch,
        budget_bytes=budget.size_bytes,
        host_budget_bytes=request.host_budget_bytes,
        device=machine.device,
        gpu_name=machine.gpu_name,
        gpus=request.gpus,
        space_name="+".join(names),
        space_digest=digests[0] if len(digests) == 1 else joined,
        min_rank=request.min_rank,
        lora_targets=request.lora_targets,
        trainer=request.trainer,
        load_weights=request.load_weights,
        nvme_path=request.nvme_path,
    )


def _sequence_length(request: Request, maximum: int | None, default: int) -> int:
    if request.seq_len is None:
        return default
    if maximum is not None and request.seq_len > maximum:
        raise UsageError(
            f"{request.model} takes at most {maximum:,} tokens a sequence, not {request.seq_len:,}",
            f"give --seq-len {maximum} or less",
        )
    return request.seq_len


def _machine(request: Request, say: Say) -> Machine:
    from autotune.running import default_device, inspect_machine

    device = request.device
    if device is None:
        device = default_device()
        if device == "cpu":
            say("no NVIDIA GPU that torch can use: trials run on the CPU, under a real memory limit")
    machine = inspect_machine(device, nvme=request.nvme_path is not None)
    if machine.problems:
        raise EnvironmentProblem(machine.problems[0], "'autotune doctor' says all that is missing")
    if device == "cuda" and request.gpus > machine.gpus:
        raise UsageError(f"--gpus {request.gpus}, but this machine has {machine.gpus}", "ask for fewer")
    return machine
