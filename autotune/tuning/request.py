"""What the user asks of `autotune run`, as given: nothing is resolved or decided yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trials.wire import Device

if TYPE_CHECKING:
    from autotune.reuse.survey import Wanted
    from autotune.space.setting import RequestedMethod


@dataclass(frozen=True)
class Request:
    """One call of `autotune run`. Sizes in bytes, times in seconds; None where the user left it to us.

    Attributes:
        model: hub id, folder, config.json or the name of a shipped card.
        gpu_budget_bytes: device memory per GPU.
        gpu_model: a GPU whose memory is the budget.
        method: auto, full, lora, qlora or any.
        seq_len: tokens per sequence.
        global_batch: sequences per optimizer step; None: searched (`any`).
        exact_global_batch: whether no point may be off the global batch.
        gpus: GPUs per trial.
        space: a shipped space's name or a file; None: follows from the method.
        host_budget_bytes: host memory for a trial.
        min_rank: the lowest LoRA rank allowed.
        lora_targets: modules that get LoRA; None: all linear layers but the head.
        trainer: search only what this trainer can express.
        trials: the study's total.
        timeout_seconds: for the search of this call.
        trial_timeout_seconds: for one trial.
        device: cuda or cpu; None: cuda if there is a GPU.
        sampler: physics, tpe, gp, random or grid.
        until: the search ends when so small a share is expected to be left to gain; 0: never for that reason.
        study: the study's name; None: found by its inputs.
        storage: URL; None: the user's data folder.
        export_dir: the winner's folder.
        reuse: which studies to learn from: auto, own, off or names.
        exports: the trainers whose files are written beside the folder's own; `all` is every one.
        load_weights: measure with the model's real weights.
        nvme_path: a folder on NVMe that offload may use.
        seed: of the sampler and of the synthetic tokens.
        command: the command line as typed, to reproduce it.
    """

    model: str
    gpu_budget_bytes: int | None = None
    gpu_model: str | None = None
    method: RequestedMethod = "auto"
    seq_len: int | None = None
    global_batch: int | None = 32
    exact_global_batch: bool = False
    gpus: int = 1
    space: str | None = None
    host_budget_bytes: int | None = None
    min_rank: int = 16
    lora_targets: tuple[str, ...] | None = None
    trainer: str | None = None
    trials: int = 40
    timeout_seconds: float = 8 * 3600.0
    trial_timeout_seconds: float = 600.0
    device: Device | None = None
    sampler: str = "physics"
    until: float = 0.01
    study: str | None = None
    storage: str | None = None
    export_dir: Path | None = None
    reuse: Wanted = "auto"
    exports: tuple[str, ...] = ()
    load_weights: bool = False
    nvme_path: str | None = None
    seed: int = 0
    command: str = ""
