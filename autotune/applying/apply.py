"""`autotune.apply`: the measured configuration on a model that the user has built or loaded.

The same code as in a trial does each of its steps, in the same order: quantization, fused kernels, adapters,
the checkpointed share. torch is imported when it is called, since `import autotune` must stay light.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autotune.applying.measured import Measured, read_measured
from autotune.applying.suitability import check_model, differences
from autotune.errors import UsageError

_log = logging.getLogger("autotune")


def apply(model: Any, winner: str | Path) -> tuple[Any, dict[str, Any]]:
    """Put the configuration that won onto a model, for a training loop of one's own with DeepSpeed.

        model, ds_config = autotune.apply(model, "out/autotune.json")

    What was done beside what was asked, and what cannot be done to a model that is built already, is said
    through `logging`, as warnings of the logger `autotune`.

    Args:
        model: a causal language model of transformers, loaded or built, on the CPU or the GPU; it is changed
            in place. One that `from_pretrained` has quantised already is left so.
        winner: the file `autotune.json`, or the folder that holds it.

    Returns:
        The model to train, with adapters where LoRA won, in training mode; and the DeepSpeed configuration
        that was measured, for `deepspeed.initialize(model=model, model_parameters=..., config=ds_config)`,
        with `optimizer=autotune.optimizer(...)` where an 8-bit optimizer won.

    Raises:
        UsageError: no such file, one of a newer autotune, or a model that the configuration does not suit.
        EnvironmentProblem: the file cannot be read.
    """
    measured = read_measured(winner)
    check_model(model, measured)
    for difference in differences(model, measured):
        _log.warning("autotune: %s", difference)
    from trials.adapters import add_adapters
    from trials.checkpointing import set_checkpoint_fraction
    from trials.model_build import InvalidPoint, apply_liger

    point = measured.point
    model.config.use_cache = False
    _set_attention(model, measured)
    _set_precision(model, measured)
    try:
        if point.liger_kernel:
            apply_liger(model)
        if point.lora_rank:
            model = add_adapters(model, point, measured.lora_targets)
        set_checkpoint_fraction(model, point.checkpoint_fraction)
    except InvalidPoint as error:
        raise UsageError(f"{measured.path} cannot be applied: {error}") from error
    except ImportError as error:
        raise UsageError(
            f"{measured.path} cannot be applied: {error.name or error} is not installed", "install it"
        ) from error
    model.train()
    return model, _ds_config(measured)


def optimizer(parameters: Iterable[Any], winner: str | Path) -> Any | None:
    """The optimizer that `deepspeed.initialize` is to be given as `optimizer=`.

    Args:
        parameters: what is trained, from the model that `apply` has returned.
        winner: the file `autotune.json`, or the folder that holds it.

    Returns:
        bitsandbytes' 8-bit AdamW, plain or paged, where that won; None where DeepSpeed makes its own from the
        configuration.

    Raises:
        UsageError: no such file, one of a newer autotune, or bitsandbytes is not installed.
        EnvironmentProblem: the file cannot be read.
    """
    from trials.optimizers import client_optimizer

    measured = read_measured(winner)
    try:
        return client_optimizer(measured.point, list(parameters))
    except ImportError as error:
        raise UsageError(f"{measured.path} needs {error.name or error}", "install it") from error


def _set_attention(model: Any, measured: Measured) -> None:
    wanted, found = measured.point.attention, model.config._attn_implementation
    if found == wanted:
        return
    problem = ""
    try:
        model.set_attn_implementation(wanted)
    except (ImportError, ValueError) as error:
        problem = f": {' '.join(str(error).split())[:200]}"
    if model.config._attn_implementation != wanted:
        raise UsageError(
            f"it was measured with {wanted} attention, and this model cannot leave {found}{problem}",
            f'load it with attn_implementation="{wanted}"',
        )
    _log.warning("autotune: attention is now %s; it was %s", wanted, found)


def _set_precision(model: Any, measured: Measured) -> None:
    """The compute precision, and the quantization of the base."""
    from trials import quantize
    from trials.model_build import DTYPES

    point = measured.point
    if any(quantize.is_quantized(module) for module in model.modules()):
        _log.warning("autotune: the model is quantised already, and stays as it was loaded")
    else:
        dtype = DTYPES[point.precision]
        if any(p.dtype != dtype for p in model.parameters() if p.is_floating_point()):
            _log.warning("autotune: the model's weights are now %s, as they were measured", dtype)
            model.to(dtype)
        if point.quantization != "none":
            quantize.quantize_loaded(model, point)
    if point.quantization == "nf4":
        quantize.keep_layout(model)


def _ds_config(measured: Measured) -> dict[str, Any]:
    """What was measured; the batch of all processes together follows how many there are now."""
    config = copy.deepcopy(measured.ds_config)
    processes = _processes()
    if processes != measured.gpus:
        _log.warning(
            "autotune: measured with %d process(es), now there are %d: train_batch_size follows",
            measured.gpus,
            processes,
        )
        config["train_batch_size"] = (
            config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * processes
        )
    return config


def _processes() -> int:
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    return int(os.environ.get("WORLD_SIZE", "1"))
