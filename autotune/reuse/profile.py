"""What of a training decides its memory and speed, in a form in which two trainings can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trials.wire import ModelSpec

if TYPE_CHECKING:
    from autotune.study.inputs import StudyInputs
    from autotune.study.measured_on import MeasuredOn

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_INNER = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
# Two matrices in the feed-forward part instead of three.
_WITHOUT_GATE = frozenset(
    {"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi"}
    | {"starcoder2", "xglm"}
)
# Where the configuration does not say so, the head is the embedding.
_TIED_BY_DEFAULT = frozenset(
    {"bloom", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt"}
    | {"xglm"}
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
    hidden = _number(config, _HIDDEN, 1024)
    heads = _number(config, _HEADS, 16)
    layers, vocabulary = _number(config, _LAYERS, 24), _number(config, _VOCABULARY, 32_000)
    kv_heads = min(heads, _number(config, _KV_HEADS, heads))
    if family == "falcon" and config.get("multi_query", True) and not config.get("new_decoder_architecture"):
        kv_heads = 1
    head = _number(config, ("head_dim",), max(1, hidden // heads))
    experts = _number(config, _EXPERTS, 1)
    gated = family not in _WITHOUT_GATE
    inner = _number(config, _INNER, 4 * hidden)
    if experts > 1:
        inner = _number(config, ("moe_intermediate_size",), inner)
    layer = hidden * head * 2 * (heads + kv_heads) + (3 if gated else 2) * experts * hidden * inner
    tied = bool(config.get("tie_word_embeddings", family in _TIED_BY_DEFAULT))
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
    )


def _number(config: Mapping[str, Any], keys: Sequence[str], default: int) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return default
