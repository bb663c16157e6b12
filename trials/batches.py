"""Synthetic token batches at full sequence length: memory and speed do not depend on the tokens' values."""

from __future__ import annotations

from typing import Any

import torch


class SyntheticBatches:
    """Endless batches of random tokens, shape [micro_batch_size, seq_len], labels equal to the inputs."""

    def __init__(self, vocab_size: int, seq_len: int, device: torch.device, seed: int) -> None:
        self._vocab_size = vocab_size
        self._seq_len = seq_len
        self._device = device
        self._generator = torch.Generator(device="cpu").manual_seed(seed)

    def next(self, micro_batch_size: int) -> dict[str, Any]:
        """One batch as the keyword arguments of a causal language model's forward."""
        shape = (micro_batch_size, self._seq_len)
        tokens = torch.randint(0, self._vocab_size, shape, generator=self._generator).to(self._device)
        return {"input_ids": tokens, "labels": tokens, "use_cache": False}
