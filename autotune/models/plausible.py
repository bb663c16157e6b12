"""Sizes that no model can have: told from the configuration, before anything tries to build it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.models.keys import HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, VOCABULARY

# Some way beyond the largest that were published: 1,000 layers (DeepNet), 32,768 wide with four times that
# inside, 512 heads, a million tokens. Layers are built one by one, which takes time as their memory does not.
_MOST = (
    (LAYERS, 1_000),
    (HIDDEN, 1 << 20),
    (INNER, 1 << 23),
    (HEADS, 1 << 14),
    (KV_HEADS, 1 << 14),
    (VOCABULARY, 1 << 26),
)


def check_sizes(config: Mapping[str, Any], name: str) -> None:
    """Refuse sizes that are not positive, or beyond what anybody trains.

    What is no number at all is left to transformers, which knows what each architecture takes.

    Args:
        config: of one causal language model.
        name: what the user calls it.

    Raises:
        UsageError: a size is impossible.
    """
    for keys, most in _MOST:
        for key in keys:
            value = config.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value <= 0:
                raise UsageError(
                    f"the configuration of {name} has {key} {value:g}, which must be a positive number",
                    "check its config.json",
                )
            if value > most:
                raise UsageError(
                    f"the configuration of {name} has {key} {value:,}; at most {most:,} are taken",
                    "check its config.json",
                )
