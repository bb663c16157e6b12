"""Under which keys configurations give a decoder's sizes, and how one of them is looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "num_decoder_layers")
VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
HIDDEN = ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads")
INNER = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
# Architectures whose head is the embedding where the configuration does not say so.
TIED_BY_DEFAULT = frozenset(
    {"bloom", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt"}
    | {"xglm"}
)


def first_size(config: Mapping[str, Any], keys: Sequence[str]) -> int | None:
    """The first of these keys' values that is a positive whole number; None where none is."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
