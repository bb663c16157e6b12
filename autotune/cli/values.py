"""The kinds of value that flags take: sizes, durations, shares, a global batch, lists of names."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from autotune.errors import AutotuneError

_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
# A number without a unit below this is a unit forgotten: nobody trains in less.
LEAST_BARE_BYTES = 2**20
_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}


def parse_duration(text: str) -> float:
    """Seconds in `90s`, `30m`, `8h`, `1h30m`, `1.5h` or `2d`.

    Raises:
        ValueError: not a duration, or not longer than nothing.
    """
    compact = text.strip().lower().replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration: write 90s, 30m, 8h or 1h30m")
    units = [unit for _, unit in parts]
    if sorted(units, key="dhms".index) != units or len(set(units)) != len(units):
        raise ValueError(f"{text!r} is not a duration: each unit once, the largest first, as in 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0 or not math.isfinite(seconds):
        raise ValueError(f"{text!r} is no time at all: write 90s, 30m, 8h or 1h30m")
    return seconds


class SizeType(click.ParamType[int]):
    """A memory size such as `24GB`, in bytes; GB and GiB are both 2**30, as GPU makers count."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        if isinstance(value, int):
            return value
        from autotune.sizes import parse_size

        text = str(value).strip()
        try:
            size_bytes = parse_size(text)
        except AutotuneError as error:
            self.fail(f"{error.message}{': ' + error.hint if error.hint else ''}", param, ctx)
        if size_bytes < LEAST_BARE_BYTES and text[-1:] in "0123456789.":
            self.fail(f"{text} is {size_bytes} bytes: did you mean {text}GB?", param, ctx)
        return size_bytes


class DurationType(click.ParamType[float]):
    """A length of time such as `8h`, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ShareType(click.ParamType[float]):
    """A share such as `1%` or `0.01`, from 0 to below 1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        number = text.removesuffix("%").strip()
        try:
            share = float(number) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 <= share < 1:
            self.fail(f"{value!r} is no share: write 1% or 0.01, less than 100%", param, ctx)
        return share


class SizesType(click.ParamType[tuple[int, ...]]):
    """Memory sizes separated by commas, such as `16GB,24GB`; `curve` is none of them, for the curve alone."""

    name = "size,...|curve"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Bytes."""
        if isinstance(value, tuple):
            return value
        if str(value).strip().lower() == "curve":
            return ()
        return tuple(SIZE.convert(part.strip(), param, ctx) for part in str(value).split(","))


class GlobalBatchType(click.ParamType[int | str]):
    """Sequences per optimizer step, or `any`, which makes it part of the search."""

    name = "int|any"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """A positive number or the word `any`."""
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        if text == "any":
            return "any"
        if not text.isdecimal() or int(text) < 1:
            self.fail(f"{value!r} is neither a number of sequences nor 'any'", param, ctx)
        return int(text)


class NamesType(click.ParamType[tuple[str, ...]]):
    """Names separated by commas, such as `q_proj,v_proj`."""

    name = "name,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names in order, each once."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(part.strip() for part in str(value).split(",")))
        if not all(names):
            self.fail(f"{value!r} has an empty name in it: write q_proj,v_proj", param, ctx)
        return names


class ReuseType(click.ParamType[str | tuple[str, ...]]):
    """The studies to learn from: `auto`, `own`, `off`, or names separated by commas."""

    name = "auto|own|off|study,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | tuple[str, ...]:
        """`auto`, `own`, `off` or the names in order, each once."""
        if isinstance(value, tuple):
            return value
        word = str(value).strip().lower()
        return word if word in ("auto", "own", "off") else NAMES.convert(value, param, ctx)


class TextType(click.types.StringParamType):
    """A text that is not empty: an unset variable of a shell is no wish for the default."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as given."""
        text: str = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is empty: leave the flag out for the default", param, ctx)
        return text


class FolderType(click.ParamType[str]):
    """A folder that exists."""

    name = "dir"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The path as given."""
        from pathlib import Path

        if not value or not Path(value).is_dir():
            self.fail(f"{value!r} is no folder", param, ctx)
        return str(value)


SIZE = SizeType()
FOLDER = FolderType()
DURATION = DurationType()
GLOBAL_BATCH = GlobalBatchType()
NAMES = NamesType()
REUSE = ReuseType()
SHARE = ShareType()
SIZES = SizesType()
TEXT = TextType()
