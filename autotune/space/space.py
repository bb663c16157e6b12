"""A search space: for each field that it lists, the values that may be tried."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from autotune.space.fields import Value, point_fields


@dataclass(frozen=True)
class Space:
    """The values a search may try, before any condition is applied.

    Attributes:
        name: the shipped space's name, or the stem of the user's file.
        values: for each listed field of `Point` its distinct values in canonical order; a field that is
            not listed takes its neutral value, and the accumulation follows from the global batch.
        digest: 16 hexadecimal digits of the values alone, whatever their order, the name or comments.
    """

    name: str
    values: Mapping[str, tuple[Value, ...]]
    digest: str

    @classmethod
    def of(cls, name: str, values: Mapping[str, Sequence[Value]]) -> Space:
        """Builds a space from checked values: sorts them, drops repetitions and computes the digest."""
        fields = point_fields()
        ordered = {
            field: tuple(sorted(set(values[field]), key=fields[field].order))
            for field in fields
            if field in values
        }
        assert ordered.keys() == values.keys(), "every name is a field of Point"
        text = json.dumps(ordered, sort_keys=True)
        return cls(name, MappingProxyType(ordered), hashlib.sha256(text.encode()).hexdigest()[:16])

    def of_field(self, name: str) -> tuple[Value, ...]:
        """The values of one field: those listed, else the neutral one alone."""
        return self.values.get(name, (point_fields()[name].neutral,))
