"""Sizes of memory as people write them: parsed into bytes and printed back.

GPU makers count in powers of two whatever the label says, so `24GB` and `24GiB` are both 24 x 2^30 bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction

from autotune.errors import UsageError

_UNIT_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_LARGEST_BYTES = 2**63 - 1  # what SQLite and the usual JSON readers can hold
_HINT = "write it like 24GB, 24GiB, 1.5GB, 800MB or 8000000000 (bytes)"


def parse_size(text: str) -> int:
    """Reads a size of memory.

    Args:
        text: a number, then nothing or a unit (`B`, `KB`, `MB`, `GB`, `TB`, with or without the `i`, in any
            case, with or without the final `B`). All units are powers of 1024. A fraction is rounded to whole
            bytes.

    Returns:
        Bytes, at least 1.

    Raises:
        UsageError: if it is no size, not above zero, or larger than 2^63 - 1 bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or text.strip().lower() == "ib":
        raise UsageError(f"{text!r} is not a size of memory", _HINT)
    number, unit = match.groups()
    size_bytes = round(Fraction(number) * _UNIT_BYTES[unit.lower()])
    if size_bytes < 1:
        raise UsageError(f"a size of memory has to be at least one byte, not {text!r}", _HINT)
    if size_bytes > _LARGEST_BYTES:
        raise UsageError(f"{text!r} is more memory than can be counted", _HINT)
    return size_bytes


def format_shortage(needed_bytes: int, budget_bytes: int) -> str:
    """`31.2 GiB of 24.0 GiB`, and where both would look alike `24.0 GiB of 24.0 GiB (12 MiB short)`."""
    needed, budget = format_size(needed_bytes), format_size(budget_bytes)
    alike = needed == budget and needed_bytes > budget_bytes
    return f"{needed} of {budget}" + (f" ({format_size(needed_bytes - budget_bytes)} short)" if alike else "")


def format_size(size_bytes: int) -> str:
    """Prints a size of memory for a person.

    Args:
        size_bytes: bytes; negative for what is missing.

    Returns:
        `23.4 GiB` with one decimal from a GiB on, whole `812 MiB` or `3 KiB` below, and `17 B`.
    """
    sign = "-" if size_bytes < 0 else ""
    magnitude = abs(size_bytes)
    if magnitude < 1024:
        return f"{sign}{magnitude} B"
    for unit, bytes_per_unit, decimals in (("KiB", 2**10, 0), ("MiB", 2**20, 0), ("GiB", 2**30, 1)):
        # Compared as printed: 1023.7 MiB would otherwise show as 1024 MiB.
        if float(f"{magnitude / bytes_per_unit:.{decimals}f}") < 1024:
            return f"{sign}{magnitude / bytes_per_unit:.{decimals}f} {unit}"
    return f"{sign}{magnitude / 2**40:.1f} TiB"
