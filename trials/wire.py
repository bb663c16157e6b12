"""What crosses the wire between the controller and a trial: plain, strict, frozen and versioned.

The controller sends a `TrialSpec`; the trial answers with events, one JSON object a line, and a
`TrialResult`.
Standard library and pydantic only, so that either half can import it without loading anything heavy.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

WIRE_VERSION = 1

Precision = Literal["bf16", "fp16", "fp32"]
Offload = Literal["none", "optimizer", "optimizer+parameters", "nvme_optimizer", "nvme_optimizer+parameters"]
Quantization = Literal["none", "nf4", "int8"]
Optimizer = Literal["adamw", "adamw8bit", "paged_adamw8bit"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
Device = Literal["cuda", "cpu"]
Method = Literal["full", "lora", "qlora"]

# What a live engine can change between two measurements.
LIVE_FIELDS = ("micro_batch_size", "gradient_accumulation_steps", "checkpoint_fraction")


class Strict(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Point(Strict):
    """One configuration: flat and canonical, so that equal configurations are equal points.

    A field left out takes its neutral value.
    """

    micro_batch_size: int = Field(default=1, ge=1, description="sequences per GPU per forward")
    gradient_accumulation_steps: int = Field(default=1, ge=1, description="micro batches per optimizer step")
    precision: Precision = Field(
        default="bf16", description="compute precision; fp32 means TF32 matmuls where there are"
    )
    checkpoint_fraction: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="share of decoder layers, from the first, whose activations are recomputed",
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(default=0, description="DeepSpeed ZeRO stage")
    offload: Offload = Field(default="none", description="what DeepSpeed keeps off the GPU")
    lora_rank: int = Field(default=0, ge=0, description="0: full fine-tuning")
    quantization: Quantization = Field(default="none", description="of the frozen base; needs LoRA")
    optimizer: Optimizer = Field(
        default="adamw", description="the paged one keeps its state in managed memory"
    )
    attention: Attention = Field(default="sdpa", description="transformers' attention implementation")
    liger_kernel: bool = Field(
        default=False, description="fused linear cross-entropy and kernels of liger-kernel"
    )
    zero_bucket_elements: int | None = Field(
        default=None,
        ge=1,
        description="DeepSpeed's buckets; None: the smaller of 5e8 and the trainable parameters",
    )

    @property
    def method(self) -> Method:
        """The fine-tuning method this point belongs to."""
        if self.lora_rank == 0:
            return "full"
        return "lora" if self.quantization == "none" else "qlora"

    @property
    def build(self) -> tuple[Any, ...]:
        """All fields but those that a live engine can change: points with equal ones share a build."""
        return tuple(getattr(self, name) for name in type(self).model_fields if name not in LIVE_FIELDS)


class ModelSpec(Strict):
    """A model to build: its transformers configuration, and where its weights are if they are wanted."""

    name: str = Field(description="what the user calls it: a card's name, a hub id or a path")
    config: dict[str, Any] = Field(description="the transformers config.json, with model_type")
    weights: str | None = Field(
        default=None, description="hub id or folder to load weights from; None: initialise randomly"
    )


class TrialSpec(Strict):
    """Everything one trial needs to know. Sizes in bytes, times in seconds."""

    wire_version: Literal[1] = 1
    trial_id: str = Field(description="unique within the study; names the log file")
    model: ModelSpec
    point: Point
    seq_len: int = Field(ge=1, description="tokens per sequence")
    lora_targets: tuple[str, ...] | None = Field(
        default=None, description="module names; None: all linear except the head"
    )
    device: Device = "cuda"
    processes: int = Field(default=1, ge=1, description="one per GPU")
    budget_bytes: int | None = Field(
        default=None, description="device memory allowed per process; None: no limit"
    )
    outside_allocator_bytes: int = Field(
        default=0, description="the machine's share outside PyTorch's allocator"
    )
    host_budget_bytes: int | None = Field(
        default=None, description="host memory allowed for all processes together"
    )
    nvme_path: str | None = None
    torch_adam: bool = Field(
        default=False, description="torch's AdamW where DeepSpeed would compile FusedAdam"
    )
    seed: int = 0
    gradient_clipping: float = 1.0
    warmup_steps: int = Field(default=2, ge=0, description="optimizer steps before the clock counts")
    min_timed_steps: int = Field(default=2, ge=1)
    max_timed_steps: int = Field(default=20, ge=1)
    min_measure_seconds: float = Field(
        default=0.0, description="a small spread is enough after this long: a few quick steps agree by luck"
    )
    measure_seconds: float = Field(default=4.0, description="timing stops here once min_timed_steps are done")
    target_spread: float = Field(
        default=0.015, description="relative half-width of the median's interval that is enough"
    )
    stop_below_tokens_per_second: float | None = Field(
        default=None, description="clearly slower than this: stop early"
    )
    decided_below_tokens_per_second: float | None = Field(
        default=None, description="surely slower than this: measured well enough"
    )
    confirm: bool = Field(
        default=False, description="also evaluate, save a checkpoint and squeeze the cap to what is claimed"
    )
    log_path: str = Field(description="file for everything the trial prints")
    work_dir: str = Field(description="existing folder for the trial's own files")

    @property
    def build(self) -> tuple[Any, ...]:
        """What an engine is started with and keeps: trials that agree in it can be measured on one engine."""
        return (
            self.model,
            self.point.build,
            self.seq_len,
            self.lora_targets,
            self.device,
            self.processes,
            self.nvme_path,
            self.torch_adam,
            self.gradient_clipping,
        )


class Phase(StrEnum):
    """Where in its life a trial is, or ended."""

    LOAD = "load"
    START = "start"
    FORWARD = "forward"
    BACKWARD = "backward"
    FIRST_STEP = "first_step"
    LATER_STEP = "later_step"
    EVALUATION = "evaluation"
    SAVING = "saving"


class Outcome(StrEnum):
    """What can happen to a trial."""

    OK = "ok"
    STOPPED = "stopped"
    OOM = "oom"
    HOST_OOM = "host_oom"
    TIMEOUT = "timeout"
    CRASH = "crash"
    NAN = "nan"
    INVALID = "invalid"


class GpuState(Strict):
    """The GPU while it was measured; None where NVML does not say."""

    name: str
    driver: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    other_processes: bool | None = Field(
        default=None, description="whether another process used the GPU meanwhile"
    )


class TrialResult(Strict):
    """What a trial reports. A field is None where it was not reached or does not apply."""

    wire_version: Literal[1] = 1
    trial_id: str
    outcome: Outcome
    phase: Phase = Field(description="the phase it ended in")
    message: str = Field(default="", description="in the user's words; empty when ok")
    build: Literal["fresh", "reused"] = Field(
        default="fresh", description="reused: on an engine that had measured other points of its build"
    )
    disturbed: str | None = Field(
        default=None, description="what happened on the GPU meanwhile, in the user's words"
    )
    tokens_per_second: float | None = Field(
        default=None, description="median over full optimizer steps, all GPUs"
    )
    tokens_per_second_low: float | None = Field(
        default=None, description="lower end of the median's 95 % interval"
    )
    tokens_per_second_high: float | None = None
    step_seconds: tuple[float, ...] = Field(default=(), description="each timed optimizer step")
    setup_seconds: float | None = Field(
        default=None, description="from fork, or from being asked, until the engine is ready to step"
    )
    trial_seconds: float | None = Field(default=None, description="the same until the result")
    peak_allocated_bytes: int | None = Field(default=None, description="largest over the training steps")
    setup_peak_allocated_bytes: int | None = Field(
        default=None, description="largest over load and start of the build"
    )
    phase_peak_allocated_bytes: dict[str, int] = Field(
        default_factory=dict, description="by phase; those of this measurement, not of a reused build"
    )
    peak_reserved_bytes: int | None = None
    device_bytes: int | None = Field(
        default=None, description="NVML; on the CPU what the process holds beyond its imports"
    )
    outside_allocator_bytes: int | None = Field(
        default=None, description="device_bytes less reserved, at the end"
    )
    required_device_bytes: int | None = Field(default=None, description="smallest budget under which it runs")
    required_verified: bool = Field(
        default=False, description="whether it was run under required_device_bytes"
    )
    host_peak_bytes: int | None = Field(default=None, description="largest, the build's own included")
    trainable_parameters: int | None = None
    total_parameters: int | None = None
    losses: tuple[float, ...] = ()
    oom_requested_bytes: int | None = None
    oom_short_bytes: int | None = None
    tf32: bool | None = Field(default=None, description="whether fp32 matmuls ran as TF32")
    ds_config: dict[str, Any] | None = Field(default=None, description="the DeepSpeed configuration that ran")
    lora_targets: tuple[str, ...] | None = Field(
        default=None, description="the adapters' module names, resolved"
    )
    versions: dict[str, str] = Field(default_factory=dict)
    gpu: GpuState | None = None
