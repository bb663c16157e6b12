"""What the pre-warmed process loads: as much as a fork survives.

CUDA does not survive a fork, and some libraries touch it when they are imported (peft imports
bitsandbytes, which initialises it). Which ones do differs by version, so the doubtful ones are tried in a
forked probe first, and only those that left CUDA alone there are loaded here.

Checked with torch 2.11.0, transformers 5.17.0, deepspeed 0.19.8, peft 0.21.2, bitsandbytes 0.50.2.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path

# In this order; the first that touches CUDA ends the list. Most of bitsandbytes' import is torch's compiler.
DOUBTFUL = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "accelerate",
    "deepspeed",
    "liger_kernel.transformers",
)


def preload(device: str, model_type: str | None) -> None:
    """Import what a trial needs and a fork survives.

    Args:
        device: "cuda" or "cpu"; on the CPU everything is loaded.
        model_type: transformers' model type whose code is loaded too.
    """
    import torch  # noqa: F401
    import transformers
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    transformers.logging.set_verbosity_error()
    if model_type in CONFIG_MAPPING:
        with contextlib.suppress(KeyError, ImportError):
            MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]]
    modules = ("bitsandbytes", "deepspeed", "peft") if device == "cpu" else fork_safe(DOUBTFUL)
    for module in modules:
        importlib.import_module(module)


def fork_safe(modules: Sequence[str]) -> tuple[str, ...]:
    """The leading modules whose import leaves CUDA alone, found out in a forked process."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        # os._exit in every case: this process must not go on as the server.
        try:
            os.close(read_fd)
            for index, module in enumerate(modules):
                importlib.import_module(module)
                if cuda_is_touched():
                    break
                os.write(write_fd, bytes([index]))
        finally:
            os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        count = len(pipe.read())
    os.waitpid(pid, 0)
    return tuple(modules[:count])


def cuda_is_touched() -> bool:
    """Whether this process has initialised CUDA, through torch or by the driver's own interface.

    The driver starts a thread of its own when it is initialised, whoever asked for it.
    """
    import torch

    return torch.cuda.is_initialized() or any(name.startswith("cuda") for name in thread_names())


def thread_names() -> list[str]:
    """The names of this process' threads."""
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
