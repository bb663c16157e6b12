"""The DeepSpeed configuration of a point: a pure function, shared by the trial that runs it and the export.

Checked with deepspeed 0.19.8.
"""

from __future__ import annotations

from typing import Any

from trials.wire import Device, Point

DEEPSPEED_BUCKET_ELEMENTS = 500_000_000
DEEPSPEED_PREFETCH_ELEMENTS = 50_000_000
LEARNING_RATE = 1e-5

# A random model under DeepSpeed's own start of 2^16 skips its first optimizer steps, and with them the lazily
# created optimizer state: its memory would be missed. Later growth is DeepSpeed's own.
FP16_INITIAL_SCALE_POWER = 8


def bucket_elements(point: Point, trainable_parameters: int) -> int:
    """The bucket that runs: the point's own, else the smaller of DeepSpeed's default and what is trained.

    A bucket no larger than the trainable parameters costs nothing on one GPU, while DeepSpeed's default is
    allocated in full whatever the model's size.
    """
    if point.zero_bucket_elements is not None:
        return point.zero_bucket_elements
    return max(1, min(DEEPSPEED_BUCKET_ELEMENTS, trainable_parameters))


def batch_config(point: Point, processes: int) -> dict[str, int]:
    """What a live engine can change of its configuration."""
    return {
        "train_micro_batch_size_per_gpu": point.micro_batch_size,
        "gradient_accumulation_steps": point.gradient_accumulation_steps,
        "train_batch_size": point.micro_batch_size * point.gradient_accumulation_steps * processes,
    }


def deepspeed_config(
    point: Point,
    *,
    trainable_parameters: int,
    largest_parameter: int,
    device: Device = "cuda",
    processes: int = 1,
    gradient_clipping: float = 1.0,
    nvme_path: str | None = None,
    torch_adam: bool = False,
) -> dict[str, Any]:
    """The dictionary given to `deepspeed.initialize` for this point.

    Args:
        point: the configuration.
        trainable_parameters: elements that receive gradients; sizes the buckets.
        largest_parameter: elements of the largest parameter; sizes the NVMe buffers, which must hold it.
        device: where it trains.
        processes: data-parallel processes.
        gradient_clipping: largest gradient norm; 0 turns clipping off.
        nvme_path: folder for NVMe offload; required where the point asks for it.
        torch_adam: use torch.optim.AdamW where DeepSpeed would compile FusedAdam (no CUDA compiler, or a
        CPU).

    Raises:
        ValueError: NVMe offload without a path.
    """
    config: dict[str, Any] = {
        **batch_config(point, processes),
        "gradient_clipping": gradient_clipping,
        "steps_per_print": 1000,
    }
    if point.precision == "bf16":
        config["bf16"] = {"enabled": True}
    elif point.precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": FP16_INITIAL_SCALE_POWER}
    if point.optimizer == "adamw":
        params: dict[str, Any] = {
            "lr": LEARNING_RATE,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "weight_decay": 0.0,
        }
        if torch_adam and point.offload == "none":
            params["torch_adam"] = True
        config["optimizer"] = {"type": "AdamW", "params": params}
    else:
        config["zero_allow_untested_optimizer"] = True
    if point.zero_stage:
        config["zero_optimization"] = _zero(
            point, bucket_elements(point, trainable_parameters), largest_parameter, nvme_path
        )
    return config


def _zero(point: Point, bucket: int, largest_parameter: int, nvme_path: str | None) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": point.zero_stage, "reduce_bucket_size": bucket}
    if point.zero_stage == 3:
        zero["stage3_prefetch_bucket_size"] = min(bucket, DEEPSPEED_PREFETCH_ELEMENTS)
    else:
        zero["allgather_bucket_size"] = bucket
    nvme = point.offload.startswith("nvme_")
    if nvme and not nvme_path:
        raise ValueError("NVMe offload needs a path")
    if point.offload != "none":
        zero["offload_optimizer"] = _offload_target(nvme, nvme_path)
    if point.offload.endswith("+parameters"):
        parameters = _offload_target(nvme, nvme_path)
        if nvme:
            # DeepSpeed refuses a parameter that is larger than one buffer.
            parameters["buffer_size"] = max(100_000_000, largest_parameter)
        zero["offload_param"] = parameters
    return zero


def _offload_target(nvme: bool, nvme_path: str | None) -> dict[str, Any]:
    target: dict[str, Any] = {"device": "nvme" if nvme else "cpu", "pin_memory": True}
    if nvme:
        target["nvme_path"] = nvme_path
    return target
