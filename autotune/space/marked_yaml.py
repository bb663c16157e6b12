"""A part of YAML, read safely, with the line and column of everything: a mapping of plain values and lists.

`yaml.safe_load` keeps no positions and lets the last of two equal keys win, so the nodes are walked instead.
Nothing is constructed but text, numbers, true, false and null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

import yaml

from autotune.errors import UsageError

EXAMPLE = "as in micro_batch_size: [1, 2, 4]"
PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}
DECIMAL_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9_]*)")
DECIMAL_NUMBER = re.compile(r"[+-]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9_]+)([eE][+-][0-9]+)?")


@dataclass(frozen=True)
class Place:
    """Where in which file something stands; line and column count from 1."""

    file: str
    line: int
    column: int

    def error(self, message: str, hint: str = "") -> UsageError:
        """The user's mistake at this place."""
        return UsageError(f"{self.file}:{self.line}:{self.column}: {message}", hint)


@dataclass(frozen=True)
class Scalar:
    """A plain value, the text it was written as, and its place."""

    value: bool | int | float | str | None
    text: str
    quoted: bool
    place: Place


@dataclass(frozen=True)
class Listing:
    """A list of nodes and its place."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True)
class Entry:
    """One key of a mapping, with its value."""

    key: str
    place: Place
    value: Node


@dataclass(frozen=True)
class Table:
    """A mapping with distinct text keys, and its place."""

    entries: tuple[Entry, ...]
    place: Place


Node = Scalar | Listing | Table


def parse_table(text: str, file: str) -> Table:
    """Parses one YAML document that is a mapping.

    Args:
        text: the document.
        file: its name, for messages.

    Raises:
        UsageError: it is no YAML, no mapping, empty, has a key twice, or holds something that is not plain.
    """
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                raise UsageError(f"{file}: the file is empty", EXAMPLE)
            node = _convert(root, loader, file)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        _raise_syntax_error(error, file)
    except RecursionError:
        raise UsageError(
            f"{file}: the file is nested too deeply", "a space is a flat mapping of fields"
        ) from None
    if not isinstance(node, Table):
        raise node.place.error("a space is a mapping of fields to values", EXAMPLE)
    return node


def _convert(node: yaml.Node, loader: yaml.SafeLoader, file: str) -> Node:
    place = Place(file, node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.MappingNode):
        return Table(_entries(node, loader, file), place)
    if isinstance(node, yaml.SequenceNode):
        return Listing(tuple(_convert(item, loader, file) for item in node.value), place)
    assert isinstance(node, yaml.ScalarNode)
    text = str(node.value)
    if node.tag not in PLAIN_TAGS:
        raise place.error(
            f"{text!r} is neither text nor number nor true or false", "write it without a YAML tag"
        )
    quoted = node.style in ("'", '"', "|", ">")
    if not quoted:
        _refuse_odd_number(node.tag, text, place)
    value = loader.construct_object(node)  # type: ignore[no-untyped-call]
    return Scalar(value, text, quoted, place)


def _refuse_odd_number(tag: str, text: str, place: Place) -> None:
    # YAML 1.1 reads 010 as 8, 1:30 as 90 and 0x10 as 16: nobody means that in a search space.
    if tag.endswith(":int") and not DECIMAL_INTEGER.fullmatch(text):
        raise place.error(f"{text} is not a plain decimal number", "write it without prefix or leading zero")
    if tag.endswith(":float") and not DECIMAL_NUMBER.fullmatch(text):
        raise place.error(f"{text} is not a plain decimal number", "write a finite number such as 0.5")


def _entries(node: yaml.MappingNode, loader: yaml.SafeLoader, file: str) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        place = Place(file, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if not isinstance(key_node, yaml.ScalarNode):
            raise place.error("a key is a field's name", EXAMPLE)
        key = str(key_node.value)
        if key in entries:
            raise place.error(
                f"{key} is listed twice, first in line {entries[key].place.line}", "keep one of them"
            )
        entries[key] = Entry(key, place, _convert(value_node, loader, file))
    return tuple(entries.values())


def _raise_syntax_error(error: yaml.YAMLError, file: str) -> NoReturn:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        if mark is not None:
            raise Place(file, mark.line + 1, mark.column + 1).error(f"not valid YAML: {what}") from None
        raise UsageError(f"{file}: not valid YAML: {what}") from None
    raise UsageError(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from None
