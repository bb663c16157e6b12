"""Texts of a study made harmless where they stand: in a comment, a docstring, a shell, Markdown.

A study can be imported: its model's name, versions and command are what somebody else wrote.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

# Words without a meaning in Markdown, however they are put together.
_PLAIN = re.compile(r"[A-Za-z0-9 .,:/()+-]+(?:_[A-Za-z0-9 .,:/()+-]+)*")
_FORMAT = "%(prog)"


def one_line(text: str) -> str:
    r"""The text with each character that is no visible one as its escape, such as `\n`: fit for a comment."""
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def docstring(text: str) -> str:
    r"""The text as it is written between `\"\"\"`, where Python reads it back as it was.

    argparse shows the docstring and fills in `%(prog)` and its like where it has any; these stay as they are.
    """
    if _FORMAT in text:
        text = text.replace("%", "%%")
    return text.replace("\\", "\\\\").replace('"', '\\"')


def code_span(text: str) -> str:
    """The text as code in a line of Markdown, whatever backticks it has."""
    text = one_line(text)
    fence = "`" * (_longest_run(text) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def markdown_words(text: str) -> str:
    """The text in a line of Markdown: as it is where that means nothing there, else as code."""
    return text if _PLAIN.fullmatch(text) else code_span(text)


def table_cell(text: str) -> str:
    """What stands in a cell of a Markdown table: a bar would end it."""
    return text.replace("|", "\\|")


def code_block(text: str, language: str = "sh") -> str:
    """Lines of code in Markdown, in a fence that none of them can close."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def shell_words(words: Iterable[str]) -> str:
    """A command of these words on one line, as a shell takes them."""
    return " ".join(_shell_word(word) for word in words)


def one_command(text: str) -> str:
    """The one command that a text says, each of its words quoted: no other comes after it.

    A text that no shell could read is cut at its spaces.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return shell_words(words)


def _shell_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    body = word.replace("\\", "\\\\").replace("'", "\\x27")
    return f"$'{one_line(body)}'"


def _escaped(character: str) -> str:
    # Not \x85: in a shell that is a byte.
    if 0x80 <= ord(character) <= 0xFF:
        return f"\\u{ord(character):04x}"
    return character.encode("unicode_escape").decode("ascii")


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
