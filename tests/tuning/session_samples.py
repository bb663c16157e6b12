"""Sessions whose points are predicted; without a runner of their own, no trial can start."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from prediction_samples import GIB, h200
from tuning_samples import empty_study

from autotune.display.lines import Lines
from autotune.models import resolve_model
from autotune.running import Machine, OutsideShare, TrialRunner
from autotune.space import Setting, load_space
from autotune.study import default_storage_url
from autotune.tuning.budget import Budget
from autotune.tuning.folders import study_folders
from autotune.tuning.foresight import Foresight
from autotune.tuning.interrupts import Interrupts
from autotune.tuning.request import Request
from autotune.tuning.session import Session
from autotune.tuning.stages import Stage, enumerate_stages
from autotune.tuning.task import Task

SPACE = "micro_batch_size: [1, 8]\ncheckpoint_fraction: [1]\n"
KNOBS = {"full": "", "lora": "lora_rank: [16]\n", "qlora": "lora_rank: [16]\nquantization: [nf4]\n"}


def make_task(
    folder: Path,
    *methods: Any,
    budget_bytes: int = 24 * GIB,
    machine: Machine | None = None,
    space: str = SPACE,
    **request: Any,
) -> Task:
    """A tuning of tiny-llama over a small space for each method, on an H200 unless told otherwise."""
    machine, model = machine or h200(), resolve_model("tiny-llama")
    setting = Setting(
        method=methods[0],
        global_batch=8,
        exact_global_batch=False,
        gpus=1,
        min_rank=16,
        capabilities=machine.capabilities,
    )
    stages = []
    for method in methods:
        file = folder / f"{method}.yaml"
        file.write_text(space + KNOBS[method])
        stages.append(Stage(method, load_space(str(file))))
    return Task(
        request=Request(model="tiny-llama", device=machine.device, **request),
        model=model,
        machine=machine,
        budget=Budget(budget_bytes, "as asked"),
        host_budget_bytes=100 * GIB,
        seq_len=128,
        setting=setting,
        stages=enumerate_stages(stages, setting),
        inputs=empty_study(folder, device=machine.device, budget_bytes=budget_bytes).inputs,
    )


def make_session(
    folder: Path, task: Task, foresight: Foresight | None, runner: TrialRunner | None = None
) -> tuple[Session, io.StringIO]:
    """The session, and the lines it writes; without a runner, one that cannot start."""
    lines = io.StringIO()
    nowhere = folder / "no-such-folder"
    session = Session(
        task=task,
        study=empty_study(folder, device=task.device, budget_bytes=task.budget.size_bytes),
        runner=runner or TrialRunner("cuda", model_type=None, log_dir=nowhere),
        observer=Lines(lines, verbose=True),
        interrupts=Interrupts(),
        folders=study_folders(folder / "data", "s", default_storage_url(), folder / "out"),
        outside=OutsideShare(task.machine, folder),
        torch_adam=task.machine.torch_adam,
        deadline=time.monotonic() + 120.0,
        foresight=foresight,
    )
    return session, lines
