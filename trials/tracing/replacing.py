"""Library functions replaced for as long as a trace lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(values: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Set attributes, by owner and name, and put back what they were."""
    before = {key: getattr(*key) for key in values}
    for (owner, name), value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)
