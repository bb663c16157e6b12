"""Machines as they could be found, for what depends on the machine alone."""

from __future__ import annotations

from typing import Any

from autotune.running import Machine
from autotune.space import Capabilities
from trials.wire import Device


def machine(device: Device = "cuda", **values: Any) -> Machine:
    """An H200 with compilers, or a CPU with them; `values` replace any field."""
    on_gpu = device == "cuda"
    fields: dict[str, Any] = {
        "device": device,
        "gpu_name": "NVIDIA H200" if on_gpu else None,
        "gpus": 1 if on_gpu else 0,
        "total_bytes": 150_000_000_000,
        "used_bytes": 0,
        "free_host_bytes": 100_000_000_000,
        "driver": "580.95.05" if on_gpu else None,
        "compute_capability": (9, 0) if on_gpu else None,
        "cuda_compiler": on_gpu,
        "host_compiler": True,
        "capabilities": Capabilities(
            device=device,
            bf16=True,
            fp16=on_gpu,
            flash_attention_2=False,
            liger=False,
            bitsandbytes=True,
            nvme=False,
            refused_attentions=(),
        ),
        "versions": {"torch": "2.11.0"},
    }
    return Machine(**{**fields, **values})
