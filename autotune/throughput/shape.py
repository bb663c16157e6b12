"""The matrices of a decoder from its configuration, under each architecture's own key names.

Speed needs no more than sizes: which weight matrices a layer has, how wide attention is, how large the
vocabulary. What is left to an architecture's default and matters is written here; of an architecture that is
not known a Llama-like decoder is assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

from autotune.models.keys import EXPERTS, HEADS, HIDDEN, INNER, KV_HEADS, TIED_BY_DEFAULT, first_size
from trials.wire import ModelSpec

# Query, key and value in one matrix; gate and up in one matrix; no gate at all.
_FUSED_QKV = frozenset({"gpt2", "gpt_neox", "bloom", "falcon", "gpt_bigcode", "phi3", "mpt", "codegen"})
_FUSED_GATE = frozenset({"phi3"})
_PLAIN_MLP = frozenset(
    {"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "nemotron"}
    | {"opt", "phi", "starcoder2", "xglm"}
)
_QKV_NAMES = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class Matrix:
    """One weight matrix of a decoder layer.

    Attributes:
        name: as most models call the module.
        rows: input features.
        columns: output features.
        active: how many of this kind one token passes through (experts per token).
        copies: how many of it the layer holds (experts).
    """

    name: str
    rows: int
    columns: int
    active: float = 1.0
    copies: int = 1

    @property
    def elements(self) -> int:
        """Of one copy."""
        return self.rows * self.columns


@dataclass(frozen=True)
class ModelShape:
    """A decoder's sizes.

    Attributes:
        layers: decoder layers.
        hidden: width of the residual stream.
        attention_width: heads times their dimension.
        heads: query heads.
        vocabulary: rows of the embedding.
        tied: whether the head is the embedding.
        matrices: of one decoder layer.
        window: tokens that sliding attention sees; None: all.
        scale: real parameters of the layers over those of `matrices`; 1 where nobody counted them.
    """

    layers: int
    hidden: int
    attention_width: int
    heads: int
    vocabulary: int
    tied: bool
    matrices: tuple[Matrix, ...]
    window: int | None = None
    scale: float = 1.0

    @property
    def layer_parameters(self) -> float:
        """Elements of one layer's matrices, every expert counted."""
        return self.scale * sum(matrix.elements * matrix.copies for matrix in self.matrices)

    @property
    def active_parameters(self) -> float:
        """Elements of one layer's matrices that one token is multiplied with."""
        return self.scale * sum(matrix.elements * matrix.active for matrix in self.matrices)

    @property
    def head_parameters(self) -> int:
        """Elements of the output head."""
        return self.hidden * self.vocabulary

    @property
    def total_parameters(self) -> float:
        """All weights; norms and biases, which are below a thousandth, are left out."""
        return self.layers * self.layer_parameters + self.head_parameters * (1 if self.tied else 2)

    @property
    def typical_size(self) -> float:
        """The geometric mean of a layer's rows and columns, weighed by the work in them."""
        work = sum(matrix.elements * matrix.active for matrix in self.matrices)
        logs = sum(
            matrix.elements * matrix.active * log(matrix.rows * matrix.columns) for matrix in self.matrices
        )
        return exp(logs / work / 2)

    def adapted(self, targets: Sequence[str] | None) -> tuple[Matrix, ...]:
        """The matrices that get a LoRA adapter: all of them, or those whose module is named.

        Names that match none of the usual ones belong to an architecture with its own: then all are counted.
        """
        if targets is None:
            return self.matrices
        wanted = {target.rpartition(".")[2] for target in targets}
        return tuple(matrix for matrix in self.matrices if matrix.name in wanted) or self.matrices


def shape_of(model: ModelSpec, total_parameters: int | None = None) -> ModelShape:
    """The shape that a configuration describes.

    Args:
        model: with its transformers configuration.
        total_parameters: as they were counted, where they were; the layers are scaled to them.
    """
    from autotune.models import model_limits

    limits, config = model_limits(model), model.config
    kind = str(config.get("model_type"))
    hidden = first_size(config, HIDDEN) or 1024
    heads = first_size(config, HEADS) or 16
    head = first_size(config, ("head_dim",)) or max(1, hidden // heads)
    kv_heads = _kv_heads(config, kind, heads)
    shape = ModelShape(
        layers=limits.num_layers,
        hidden=hidden,
        attention_width=heads * head,
        heads=heads,
        vocabulary=limits.vocab_size,
        tied=bool(config.get("tie_word_embeddings", kind in TIED_BY_DEFAULT)),
        matrices=(*_attention(kind, hidden, heads * head, kv_heads * head), *_mlp(config, kind, hidden)),
        window=_window(config),
    )
    if total_parameters is None:
        return shape
    outside = shape.head_parameters * (1 if shape.tied else 2)
    scale = (total_parameters - outside) / (shape.layers * shape.layer_parameters)
    # A count that no such decoder can have says that something else is different: better not to scale by it.
    return dataclasses.replace(shape, scale=scale) if 0.5 < scale < 2.0 else shape


def _attention(kind: str, hidden: int, width: int, kv_width: int) -> tuple[Matrix, ...]:
    out = Matrix("o_proj", width, hidden)
    if kind in _FUSED_QKV:
        return Matrix("qkv_proj", hidden, width + 2 * kv_width), out
    sizes = (width, kv_width, kv_width)
    return *(Matrix(name, hidden, size) for name, size in zip(_QKV_NAMES, sizes, strict=True)), out


def _mlp(config: Mapping[str, Any], kind: str, hidden: int) -> tuple[Matrix, ...]:
    experts = first_size(config, EXPERTS) or 1
    active = float(min(experts, first_size(config, ("num_experts_per_tok", "top_k_experts")) or 1))
    inner = first_size(config, INNER) or 4 * hidden
    if experts > 1:
        inner = first_size(config, ("moe_intermediate_size",)) or inner
    down = Matrix("down_proj", inner, hidden, active, experts)
    if kind in _PLAIN_MLP:
        return Matrix("up_proj", hidden, inner, active, experts), down
    if kind in _FUSED_GATE:
        return Matrix("gate_up_proj", hidden, 2 * inner, active, experts), down
    gates = (Matrix(name, hidden, inner, active, experts) for name in ("gate_proj", "up_proj"))
    return *gates, down


def _kv_heads(config: Mapping[str, Any], kind: str, heads: int) -> int:
    if kind == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else heads
    return first_size(config, KV_HEADS) or heads


def _window(config: Mapping[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False:
        return None
    window = config.get("sliding_window")
    # Where only some layers slide, the others do nearly all the work of attention.
    mixed = any(kind == "full_attention" for kind in config.get("layer_types") or ())
    return window if isinstance(window, int) and window > 0 and not mixed else None
