"""What a model's configuration says about its size, under each architecture's own key names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import UsageError
from autotune.models.keys import LAYERS, VOCABULARY, first_size
from trials.wire import ModelSpec

DEFAULT_SEQ_LEN = 1024

_POSITION_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "max_target_positions",
    "n_ctx",
)
# No positions to run out of, and no key that says so: ALiBi, state spaces, recurrence.
_WITHOUT_POSITIONS = frozenset({"bloom", "mamba", "mamba2", "falcon_mamba", "rwkv"})
# Scalings that stretch the trained length by `factor`; of the others max_position_embeddings is final.
_STRETCHING_ROPES = ("linear", "dynamic", "yarn")


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a run has to respect.

    Attributes:
        max_seq_len: longest sequence in tokens; None where there is no limit (ALiBi, state space).
        num_layers: decoder layers.
        vocab_size: rows of the embedding.
        default_seq_len: tokens per sequence where the user names none.
    """

    max_seq_len: int | None
    num_layers: int
    vocab_size: int
    default_seq_len: int


def model_limits(spec: ModelSpec) -> ModelLimits:
    """Reads a model's limits from its configuration.

    A value that the configuration leaves to its architecture's default is asked of the installed
    transformers, and only then is that imported.

    Raises:
        UsageError: if the configuration has no usable number of layers or vocabulary.
    """
    config = spec.config
    if (
        first_size(config, LAYERS) is None
        or first_size(config, VOCABULARY) is None
        or (max_positions(config) is None and not _is_unlimited(config))
    ):
        config = {**_with_defaults(spec), **config}
    layers = first_size(config, LAYERS)
    vocabulary = first_size(config, VOCABULARY)
    for what, value, keys in (("layers", layers, LAYERS), ("vocabulary", vocabulary, VOCABULARY)):
        if value is None:
            raise UsageError(
                f"the configuration of {spec.name} does not give its {what} as a positive number",
                f"transformers calls it {keys[0]} or {keys[1]}: check the config.json",
            )
    assert layers is not None and vocabulary is not None
    longest = max_positions(config)
    return ModelLimits(
        max_seq_len=longest,
        num_layers=layers,
        vocab_size=vocabulary,
        default_seq_len=DEFAULT_SEQ_LEN if longest is None else min(DEFAULT_SEQ_LEN, longest),
    )


def max_positions(config: Mapping[str, Any]) -> int | None:
    """Longest sequence in tokens that a configuration allows; None where it has no limit or names none."""
    if _is_unlimited(config):
        return None
    positions = first_size(config, _POSITION_KEYS)
    if positions is None:
        return None
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, Mapping):
        return positions
    rope = rope.get("full_attention", rope)
    if not isinstance(rope, Mapping) or rope.get("rope_type", rope.get("type")) not in _STRETCHING_ROPES:
        return positions
    factor = _number(rope.get("factor"))
    original = _number(rope.get("original_max_position_embeddings")) or positions
    return positions if factor is None else max(positions, int(original * factor))


def _is_unlimited(config: Mapping[str, Any]) -> bool:
    return bool(config.get("alibi")) or config.get("model_type") in _WITHOUT_POSITIONS


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _with_defaults(spec: ModelSpec) -> dict[str, Any]:
    """The configuration completed by its architecture's defaults."""
    from transformers import AutoConfig

    try:
        completed: dict[str, Any] = AutoConfig.for_model(**spec.config).to_dict()
    except Exception as error:  # strict configurations raise types of their own for a value they refuse
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(
            f"transformers refuses the configuration of {spec.name}: {reason}", "check its config.json"
        ) from error
    return completed
