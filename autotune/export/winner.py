"""The winner of a study: everything that leaves the tool is made from this and nothing else."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trials.wire import Device, ModelSpec, Point, Strict, TrialResult


class Winner(Strict):
    """One measured configuration with all that is needed to write it down for a trainer. Sizes in bytes."""

    study: str = Field(description="the study's name")
    model: ModelSpec
    hub_id: str | None = Field(None, description="where the weights are, if `model.name` is a card's name")
    folder: str | None = Field(None, description="the model's folder, absolute, where it is a local one")
    seq_len: int = Field(ge=1, description="tokens per sequence")
    global_batch: int | None = Field(description="sequences per optimizer step asked for; None: any")
    gpus: int = Field(1, ge=1, description="data-parallel processes, one per GPU")
    device: Device = Field("cuda", description="where it was measured")
    point: Point
    result: TrialResult = Field(description="of the trial; it ended well and carries `ds_config`")
    confirmation: TrialResult | None = Field(None, description="of the longer run in a fresh process")
    lora_targets: tuple[str, ...] | None = Field(description="asked for; None: all linear except the head")
    gpu_budget_bytes: int = Field(ge=1, description="device memory allowed per process")
    load_weights: bool = Field(description="whether it was measured with the real weights")
    created: str = Field(description="ISO 8601 time of this record")
    command: str = Field(description="the shell command that reproduces the study")

    @property
    def measured(self) -> TrialResult:
        """The run that is announced: the confirmation, else the trial."""
        return self.confirmation or self.result

    @property
    def ds_config(self) -> dict[str, Any]:
        """The DeepSpeed configuration that ran."""
        config = self.measured.ds_config or self.result.ds_config
        assert config is not None, "a trial that ended well reports the DeepSpeed configuration that ran"
        return config

    @property
    def target_modules(self) -> tuple[str, ...] | None:
        """The adapted modules' names as they were resolved on the model; None without LoRA."""
        if self.point.lora_rank == 0:
            return None
        return self.measured.lora_targets or self.result.lora_targets or self.lora_targets

    @property
    def weights_source(self) -> str | None:
        """The hub id or folder of the model's weights and tokenizer; None where the name says neither.

        The bare name of a shipped card is nobody's on the hub, or somebody else's: it must not be asked for.
        """
        name = self.model.name
        known = "/" in name and not name.endswith(".json")
        return self.model.weights or self.folder or self.hub_id or (name if known else None)
