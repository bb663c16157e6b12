"""The fields of a point as a search space sees them, derived from `Point`: there is one definition."""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le

from trials.wire import Point

Value = bool | int | float | str | None
Kind = Literal["integer", "fraction", "choice", "switch"]


@dataclass(frozen=True)
class Field:
    """What a search space may list for one field of a point.

    Attributes:
        name: the field's name in `Point`.
        kind: integer, fraction (a float), choice (one of a few words or numbers) or switch (true or false).
        neutral: the value of a point that leaves the field out.
        choices: every allowed value, in the order of the wire's declaration; empty for open-ended numbers.
        low: smallest allowed number, inclusive.
        high: largest allowed number, inclusive; None where there is no limit.
        nullable: whether "default" (None) is a value.
    """

    name: str
    kind: Kind
    neutral: Value
    choices: tuple[Value, ...] = ()
    low: float | None = None
    high: float | None = None
    nullable: bool = False

    @property
    def numeric(self) -> bool:
        """Whether a range may be written for it."""
        return self.kind in ("integer", "fraction") or all(
            isinstance(choice, int) and not isinstance(choice, bool) for choice in self.choices
        )

    def order(self, value: Value) -> tuple[int, float]:
        """A key that sorts this field's values: None first, then by size or by declaration."""
        if value is None:
            return (0, 0.0)
        if self.kind == "choice":
            return (1, float(self.choices.index(value)))
        assert not isinstance(value, str)
        return (1, float(value))


@cache
def point_fields() -> dict[str, Field]:
    """Every field of `Point`, by name, in the order of its declaration."""
    return {name: _field(name, info) for name, info in Point.model_fields.items()}


def point_order(point: Point) -> tuple[tuple[int, float], ...]:
    """A key that puts points into canonical order: field by field, in the order of declaration."""
    return tuple(field.order(getattr(point, name)) for name, field in point_fields().items())


def _field(name: str, info: Any) -> Field:
    annotation = info.annotation
    nullable = False
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
        nullable = True
    low = next((_number(bound.ge) for bound in info.metadata if isinstance(bound, Ge)), None)
    high = next((_number(bound.le) for bound in info.metadata if isinstance(bound, Le)), None)
    if get_origin(annotation) is Literal:
        return Field(name, "choice", info.default, choices=get_args(annotation), nullable=nullable)
    if annotation is bool:
        return Field(name, "switch", info.default, choices=(False, True), nullable=nullable)
    assert annotation in (int, float), f"no rule for the type of {name}"
    kind: Kind = "integer" if annotation is int else "fraction"
    return Field(name, kind, info.default, low=low, high=high, nullable=nullable)


def _number(bound: object) -> float:
    assert isinstance(bound, int | float)
    return float(bound)
