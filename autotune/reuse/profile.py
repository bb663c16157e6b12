"""What of a training decides its memory and speed, in a form in which two trainings can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.models.keys import (
    EXPERTS,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    TIED_BY_DEFAULT,
    VOCABULARY,
    first_size,
)
from trials.wire import ModelSpec

if TYPE_CHECKING:
    from autotune.study.inputs import StudyInputs
    from autotune.study.measured_on import MeasuredOn

# Two matrices in the feed-forward part instead of three.
_WITHOUT_GATE = frozenset(
    {"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi"}
    | {"starcoder2", "xglm"}
)


@dataclass(frozen=True)
class Profile:
    """A training, as far as its memory and speed go.

    Attributes:
        model: what is trained.
        model_digest: equal for equal models.
        family: the architecture, as transformers calls it (`model_type`).
        gated: whether the feed-forward part has a gate (the Llama-like decoders).
        layers: decoder layers.
        hidden: width of the residual stream.
        heads: query heads.
        kv_heads: key and value heads.
        vocabulary: rows of the embedding.
        experts: of a layer; 1 where there are none.
        parameters: about so many.
        method: auto, full, lora, qlora or any.
        seq_len: tokens per sequence.
        global_batch: sequences per optimizer step; None: searched.
        budget_bytes: device memory of one process.
        device: cuda or cpu.
        gpu_name: None on the CPU.
        gpus: data-parallel processes.
        host_cpus: logical processors; None where it is not known.
        lora_targets: None: all linear layers except the head.
        versions: of the libraries.
        rates: what the machine does per second, as its probe measured it; empty where that is not known.
    """

    model: ModelSpec
    model_digest: str
    family: str
    gated: bool
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    experts: int
    parameters: float
    method: str
    seq_len: int
    global_batch: int | None
    budget_bytes: int
    device: str
    gpu_name: str | None
    gpus: int
    host_cpus: int | None
    lora_targets: tuple[str, ...] | None
    versions: Mapping[str, str]
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def activation_size(self) -> float:
        """What the memory of one sequence's activations grows with."""
        return float(self.seq_len) * (self.layers * self.hidden * 16 + self.vocabulary * 12)


def profile_of(inputs: StudyInputs, model: ModelSpec, machine: MeasuredOn | None) -> Profile:
    """The profile of a study.

    Args:
        inputs: the study's.
        model: the model with its configuration; what that leaves out has a usual value.
        machine: what it was measured on; None where that is not known.
    """
    config = model.config
    family = str(config.get("model_type"))
    hidden = first_size(config, HIDDEN) or 1024
    heads = first_size(config, HEADS) or 16
    layers, vocabulary = first_size(config, LAYERS) or 24, first_size(config, VOCABULARY) or 32_000
    kv_heads = min(heads, first_size(config, KV_HEADS) or heads)
    if family == "falcon" and config.get("multi_query", True) and not config.get("new_decoder_architecture"):
        kv_heads = 1
    head = first_size(config, ("head_dim",)) or max(1, hidden // heads)
    experts = first_size(config, EXPERTS) or 1
    gated = family not in _WITHOUT_GATE
    inner = first_size(config, INNER) or 4 * hidden
    if experts > 1:
        inner = first_size(config, ("moe_intermediate_size",)) or inner
    layer = hidden * head * 2 * (heads + kv_heads) + (3 if gated else 2) * experts * hidden * inner
    tied = bool(config.get("tie_word_embeddings", family in TIED_BY_DEFAULT))
    return Profile(
        model=model,
        model_digest=inputs.model_digest,
        family=family,
        gated=gated,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=vocabulary,
        experts=experts,
        parameters=float(layers * layer + (1 if tied else 2) * vocabulary * hidden),
        method=inputs.method,
        seq_len=inputs.seq_len,
        global_batch=inputs.global_batch,
        budget_bytes=inputs.budget_bytes,
        device=inputs.device,
        gpu_name=inputs.gpu_name,
        gpus=inputs.gpus,
        host_cpus=machine.host_cpus if machine else None,
        lora_targets=inputs.lora_targets,
        versions=dict(machine.versions) if machine else {},
        rates=dict(machine.rates) if machine else {},
    )
