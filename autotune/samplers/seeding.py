"""Seeds that depend on the turn, so that a search goes on after an interruption as it would have without."""

from __future__ import annotations

import hashlib


def seed_of_turn(seed: int, turn: int) -> int:
    """A seed of 31 bits for one turn of a search."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{turn}".encode()).digest()[:4], "big") >> 1
