"""One configuration to estimate, as flags or as a line of a JSONL file give it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from autotune.errors import UsageError
from autotune.models import model_limits, resolve_with_notes
from trials.wire import ModelSpec, Point

DEFAULT_RANK = 16
METHODS = ("full", "lora", "qlora")
# What a recorded measurement holds beside its configuration.
IGNORED_KEYS = frozenset({"measured", "expandable_segments"})


@dataclass(frozen=True)
class Configuration:
    """A model, a sequence length and a point.

    Attributes:
        name: the model as the user calls it.
        model: resolved.
        seq_len: tokens per sequence.
        point: the configuration.
        notes: what was left out of the model's own configuration, one sentence each.
    """

    name: str
    model: ModelSpec
    seq_len: int
    point: Point
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The configuration as it would stand in a JSONL file."""
        return {
            "model": self.name,
            "seq_len": self.seq_len,
            "method": self.point.method,
            **self.point.model_dump(mode="json"),
        }


def configuration_of(values: Mapping[str, Any]) -> Configuration:
    """The configuration that `model`, `seq_len`, `method` and the fields of a point give.

    A field that is left out takes its neutral value, but for what the method asks for: `lora` without a rank
    has rank 16, `qlora` without a quantization is NF4.

    Raises:
        UsageError: an unknown key, a value out of range, or a method that contradicts the fields.
    """
    known = {"model", "seq_len", "method", *Point.model_fields}
    for key in values:
        if key not in known and key not in IGNORED_KEYS:
            close = get_close_matches(key, known, n=1)
            raise UsageError(f"unknown field {key!r}", f"did you mean {close[0]}?" if close else "")
    name = values.get("model")
    if not isinstance(name, str) or not name:
        raise UsageError("a configuration needs a model", 'e.g. "model": "llama2-7b"')
    model, notes = resolve_with_notes(name)
    limits = model_limits(model)
    seq_len = values.get("seq_len")
    if seq_len is None:
        seq_len = limits.default_seq_len
    if not isinstance(seq_len, int) or isinstance(seq_len, bool) or seq_len < 1:
        raise UsageError(f"seq_len must be a whole number of tokens, not {seq_len!r}")
    if limits.max_seq_len is not None and seq_len > limits.max_seq_len:
        raise UsageError(f"{name} takes at most {limits.max_seq_len:,} tokens a sequence, not {seq_len:,}")
    return Configuration(name, model, seq_len, _point(values), notes)


def parse_line(line: str) -> Configuration:
    """The configuration in one line of a JSONL file.

    Raises:
        UsageError: no JSON object, or one that is no configuration.
    """
    return configuration_of(parse_object(line))


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object that a configuration is written as.

    Raises:
        UsageError: it is none.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(values, dict):
        raise UsageError("a line must be a JSON object")
    return values


def _point(values: Mapping[str, Any]) -> Point:
    fields = {key: values[key] for key in Point.model_fields if values.get(key) is not None}
    method = values.get("method")
    if method is not None and method not in METHODS:
        raise UsageError(f"unknown method {method!r}", f"one of {', '.join(METHODS)}")
    if method in ("lora", "qlora"):
        fields.setdefault("lora_rank", DEFAULT_RANK)
    if method == "qlora":
        fields.setdefault("quantization", "nf4")
    try:
        point = Point.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{where}: {first['msg'].lower()}, not {first['input']!r}") from error
    if method is not None and point.method != method:
        raise UsageError(
            f"method {method} contradicts lora_rank {point.lora_rank} with quantization {point.quantization}",
            "leave the method out, or change these fields",
        )
    return point
