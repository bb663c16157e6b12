"""Whether a measured configuration suits a model: what makes it impossible, what makes its figures others."""

from __future__ import annotations

import os
from typing import Any

from autotune.applying.measured import Measured
from autotune.errors import UsageError

# Of equal values the memory and the speed are equal too.
_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size")


def check_model(model: Any, measured: Measured) -> None:
    """Raises a UsageError where the configuration cannot be put onto the model."""
    from transformers import PreTrainedModel

    if hasattr(model, "peft_config"):
        raise UsageError("the model has adapters already", "give it before get_peft_model: apply adds them")
    if not isinstance(model, PreTrainedModel):
        raise UsageError(
            f"{type(model).__name__} is not a model of transformers", "load it with AutoModelForCausalLM"
        )
    found, wanted = _family(model), str(measured.config.get("model_type"))
    if found.removesuffix("_text") != wanted.removesuffix("_text"):
        raise UsageError(
            f"{measured.path} was measured on a model of the family {wanted}, and this one is {found}",
            "tune this model: autotune run --model ...",
        )
    _check_weights(model, measured)


def _check_weights(model: Any, measured: Measured) -> None:
    """What the model's weights are in must be what was measured, or be to be made so."""
    kinds = {type(module).__name__ for module in model.modules()} & {"Linear4bit", "Linear8bitLt"}
    wanted = {"none": set(), "nf4": {"Linear4bit"}, "int8": {"Linear8bitLt"}}[measured.point.quantization]
    if kinds and kinds != wanted:
        names = {"Linear4bit": "in 4 bits", "Linear8bitLt": "in 8 bits"}
        loaded = " and ".join(names[kind] for kind in sorted(kinds))
        how = "not quantised" if not wanted else f"with {measured.point.quantization}"
        raise UsageError(
            f"the model was loaded {loaded}, and the configuration was measured {how}",
            "load it without quantization_config: apply quantises where that was measured",
        )
    if _is_partitioned(model) and measured.point.quantization != "none" and not kinds:
        raise UsageError(
            "the model's weights are partitioned by ZeRO-3 already and cannot be quantised any more",
            "load it with the quantization_config in quantization_config.json",
        )


def differences(model: Any, measured: Measured) -> list[str]:
    """Why the figures that were measured may not hold here, one sentence each."""
    point, found = measured.point, []
    own, config = model.config.get_text_config(), measured.config
    for name in _SIZES:
        size = getattr(own, name, None)
        if name in config and size is not None and size != config[name]:
            found.append(
                f"this model's {name} is {size:,}, and {config[name]:,} was measured: its memory is another"
            )
    if point.optimizer != "adamw":
        name = "AdamW8bit" if point.optimizer == "adamw8bit" else "PagedAdamW8bit"
        found.append(
            f"it was measured with bitsandbytes.optim.{name}: give deepspeed.initialize "
            "optimizer=autotune.optimizer(parameters, file)"
        )
    if point.offload.endswith("+parameters") and not _is_partitioned(model):
        found.append(
            "it was measured with the parameters partitioned while the model was built: loading takes more "
            "memory here, unless it is under transformers.integrations.HfDeepSpeedConfig"
        )
    if measured.device == "cuda" and not _expandable():
        found.append(
            "what fits was measured with expandable segments: set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before torch uses the GPU"
        )
    return found


def _family(model: Any) -> str:
    return str(model.config.get_text_config().model_type)


def _is_partitioned(model: Any) -> bool:
    return any(hasattr(parameter, "ds_id") for parameter in model.parameters())


def _expandable() -> bool:
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return any("expandable_segments:True" in os.environ.get(name, "") for name in names)
