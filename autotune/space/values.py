"""From what a file says of a field to the field's values: lists, scalars and ranges, checked strictly."""

from __future__ import annotations

from difflib import get_close_matches
from fractions import Fraction

from autotune.space.fields import Field, Value
from autotune.space.marked_yaml import Listing, Node, Scalar, Table

LONGEST_RANGE = 1000


def field_values(field: Field, node: Node) -> tuple[Value, ...]:
    """The values that a file lists for a field.

    A list of values, one value by itself, or a range: `{from: 1, to: 16, step: 1}` adds,
    `{from: 1, to: 64, factor: 2}` multiplies; both include `from`, and `to` where it is met. A range stands
    alone, not inside a list.

    Raises:
        UsageError: a value of the wrong type or out of range, an empty list, a repetition, a malformed range.
    """
    if isinstance(node, Scalar):
        return (_value(field, node),)
    if isinstance(node, Table):
        return _range_values(field, node)
    if not node.items:
        raise node.place.error(f"{field.name} lists no value", "list at least one, or leave the field out")
    values: list[Value] = []
    for item in node.items:
        if not isinstance(item, Scalar):
            what = "a list" if isinstance(item, Listing) else "a mapping"
            raise item.place.error(
                f"{field.name}: {what} inside a list", "write plain values, or one range by itself"
            )
        value = _value(field, item)
        if value in values:
            raise item.place.error(f"{field.name} lists {item.text} twice", "keep one of them")
        values.append(value)
    return tuple(values)


def _value(field: Field, scalar: Scalar) -> Value:
    if field.nullable and (scalar.value is None or scalar.value == "default"):
        return None
    if scalar.value is None:
        raise scalar.place.error(f"{field.name} has no value", f"{_expected(field)}, or leave the field out")
    if field.choices:
        return _choice(field, scalar)
    return _number(field, scalar)


def _choice(field: Field, scalar: Scalar) -> Value:
    for choice in field.choices:
        if type(choice) is type(scalar.value) and choice == scalar.value:
            return choice
    if isinstance(scalar.value, bool) and "none" in field.choices:
        hint = f"YAML reads {scalar.text} as {str(scalar.value).lower()}: write none"
    elif field.kind == "switch" and scalar.quoted and scalar.text.lower() in ("true", "false"):
        hint = f"write {scalar.text.lower()} without quotes"
    else:
        close = get_close_matches(scalar.text.lower(), [str(choice) for choice in field.choices], n=1)
        hint = f"did you mean {close[0]}?" if close else _expected(field)
    raise scalar.place.error(f"{field.name}: {scalar.text!r} is not a value", hint)


def _number(field: Field, scalar: Scalar) -> Value:
    value = scalar.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = _expected(field)
        if isinstance(value, str) and _is_number(value):
            hint = f"YAML reads {scalar.text} as text: write {_plain(field, value)}"
        raise scalar.place.error(f"{field.name}: {scalar.text!r} is not a number", hint)
    if field.kind == "integer" and isinstance(value, float):
        hint = f"write {int(value)}" if value.is_integer() else _expected(field)
        raise scalar.place.error(f"{field.name}: {scalar.text} is not a whole number", hint)
    if (field.low is not None and value < field.low) or (field.high is not None and value > field.high):
        raise scalar.place.error(f"{field.name}: {scalar.text} is out of range", _expected(field))
    return float(value) if field.kind == "fraction" else value


def _range_values(field: Field, table: Table) -> tuple[Value, ...]:
    form = "write {from: 1, to: 16, step: 1} or {from: 1, to: 64, factor: 2}"
    if not field.numeric:
        raise table.place.error(f"{field.name} is not a number and has no range", _expected(field))
    for entry in table.entries:
        if entry.key not in ("from", "to", "step", "factor"):
            raise entry.place.error(f"{field.name}: a range has no {entry.key!r}", form)
    nodes = {entry.key: entry.value for entry in table.entries}
    if not {"from", "to"} <= nodes.keys() or len(nodes) != 3:
        raise table.place.error(f"{field.name}: a range has from, to, and either step or factor", form)
    growth = "step" if "step" in nodes else "factor"
    first, last = _end(field, nodes["from"]), _end(field, nodes["to"])
    by = _growth(field, growth, nodes[growth])
    if first > last:
        raise table.place.error(f"{field.name}: the range ends before it begins", "swap from and to")
    if growth == "factor" and first == 0:
        raise table.place.error(
            f"{field.name}: a range with a factor cannot begin at 0", "begin at 1, or use a step"
        )
    values: list[Value] = []
    while first <= last:
        if len(values) == LONGEST_RANGE:
            raise table.place.error(
                f"{field.name}: the range has over {LONGEST_RANGE} values", f"use a larger {growth}"
            )
        values.append(float(first) if field.kind == "fraction" else int(first))
        first = first + by if growth == "step" else first * by
    return tuple(values)


def _end(field: Field, node: Node) -> Fraction:
    if not isinstance(node, Scalar):
        raise node.place.error(f"{field.name}: a range goes from one number to another")
    value = _choice(field, node) if field.choices else _number(field, node)
    # Through text, so that steps of 0.1 meet 0.3 exactly.
    return Fraction(str(value))


def _growth(field: Field, name: str, node: Node) -> Fraction:
    value = node.value if isinstance(node, Scalar) else None
    whole = "" if field.kind == "fraction" and name == "step" else "whole "
    low = 2 if name == "factor" else 1 if whole else 0
    wanted = f"a {whole}number of at least {low}" if whole else "a number above 0"
    valid = isinstance(value, int) or (isinstance(value, float) and not whole)
    if (
        isinstance(value, bool)
        or not valid
        or not isinstance(value, int | float)
        or value < low
        or value == 0
    ):
        raise node.place.error(f"{field.name}: the {name} of a range is {wanted}")
    return Fraction(str(value))


def _expected(field: Field) -> str:
    if field.choices:
        return "one of: " + ", ".join(
            str(choice).lower() if choice in (True, False) and field.kind == "switch" else str(choice)
            for choice in field.choices
        )
    kind = "a whole number" if field.kind == "integer" else "a number"
    low = f"{field.low:g}" if field.low is not None else None
    bounds = (
        f" from {low} to {field.high:g}" if field.high is not None else f" of at least {low}" if low else ""
    )
    return f"write {kind}{bounds}" + (", or default" if field.nullable else "")


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text) and abs(float(text)) != float("inf")
    except ValueError:
        return False


def _plain(field: Field, text: str) -> str:
    number = float(text)
    return str(int(number)) if field.kind == "integer" and number.is_integer() else f"{number:g}"
