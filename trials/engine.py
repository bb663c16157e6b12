"""Starts DeepSpeed: the process group, the partitioned build of ZeRO-3 parameter offload, and the engine.

Checked with deepspeed 0.19.8.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trials.model_build import DTYPES, ModuleSink
from trials.optimizers import client_optimizer
from trials.wire import Device, Point


def start_distributed(device: Device, rank: int, processes: int, store: Path) -> None:
    """Join the trial's process group through a file, so that no port can be taken by another."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(processes),
        LOCAL_WORLD_SIZE=str(processes),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
    )
    backend = "gloo" if device == "cpu" else "nccl"
    if device == "cuda":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=processes
    )
    import deepspeed

    deepspeed.init_distributed(dist_backend=backend, verbose=False)


def partitioning_sink(point: Point, config: dict[str, Any]) -> ModuleSink | None:
    """With parameter offload: hands each filled module's parameters to ZeRO-3, so none stays on the GPU."""
    if not point.offload.endswith("+parameters"):
        return None
    import deepspeed

    context = deepspeed.zero.Init(config_dict_or_path=config, dtype=DTYPES[point.precision])

    def sink(module: nn.Module) -> None:
        # Init.__enter__ would hook every module's construction; here they are filled after it, one by one.
        fresh = [
            parameter for parameter in module.parameters(recurse=False) if not hasattr(parameter, "ds_id")
        ]
        context._convert_to_zero_parameters(fresh)
        for parameter in fresh:
            parameter.partition()

    return sink


def start_engine(
    model: nn.Module, point: Point, parameters: Sequence[nn.Parameter], config: dict[str, Any]
) -> Any:
    """The DeepSpeed engine of a built model."""
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=list(parameters),
        optimizer=client_optimizer(point, parameters),
        config=config,
        dist_init_required=False,
    )
    return engine
