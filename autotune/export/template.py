"""Text with optional blocks: what a winner does not use is left out, and the rest stays as it is written.

A block starts with a line `# [if fact]` or `# [if not fact]`, may have `# [else]`, and ends with `# [end]`.
These lines may be indented and are never part of the result; in Python they are comments, so that a script's
template is itself a Python file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MARK = re.compile(r"\s*# \[(if not|if|else|end)(?: (\w+))?\]\s*")


def render(text: str, facts: Mapping[str, bool]) -> str:
    """The text with only the blocks whose facts hold.

    Raises:
        ValueError: a block that is not closed, an end without a start, or a fact that is not known.
    """
    kept: list[str] = []
    shown: list[bool] = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        mark = MARK.fullmatch(line)
        if mark is None:
            if all(shown):
                kept.append(line)
            continue
        word, fact = mark.groups()
        if word in ("if", "if not"):
            if fact not in facts:
                raise ValueError(f"line {number}: unknown fact {fact!r}")
            shown.append(facts[fact] == (word == "if"))
        elif not shown:
            raise ValueError(f"line {number}: {word!r} outside a block")
        elif word == "else":
            shown[-1] = not shown[-1]
        else:
            shown.pop()
    if shown:
        raise ValueError("a block is not closed")
    return "".join(kept)
