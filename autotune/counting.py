"""How many of something, in words."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 trial`, `1,200 trials`.

    Args:
        count: how many.
        noun: one of them; its plural takes an s.
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
