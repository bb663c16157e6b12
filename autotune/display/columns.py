"""Plain text tables: aligned, never cut, folded to the terminal, one row a line in a file or a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from autotune.display.room import stdout_columns

GAP = 2
# A column of text is not made narrower than this: the line is then longer than the terminal.
LEAST_TEXT_COLUMNS = 16


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    width: int | None = None,
) -> str:
    """Columns two spaces apart.

    Args:
        header: one title per column.
        rows: the cells; each row as long as the header.
        right: the indices of columns that are aligned to the right.
        width: the widest columns of text are folded between words to keep to it; None: that of the terminal
            that results go to, and no limit where they go elsewhere.

    Returns:
        The header and the rows, without a final line end.
    """
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    width = stdout_columns() if width is None else width
    if width is not None:
        _narrow(widths, right, width)
    return "\n".join(
        "  ".join(
            cell.rjust(column_width) if column in right else cell.ljust(column_width)
            for column, (cell, column_width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for row in lines
        for line in _folded(row, widths)
    )


def fields(pairs: Sequence[tuple[str, str]], *, width: int | None = None, margin: int = 0) -> str:
    """One `name  value` line per pair, the values aligned; pairs with an empty value are left out.

    Args:
        pairs: names and values.
        width: long values are folded to keep to it; None as for `table`.
        margin: columns that the caller will put before each line.
    """
    width = stdout_columns() if width is None else width
    shown = [(name, value) for name, value in pairs if value]
    names = max((len(name) for name, _ in shown), default=0)
    room = None if width is None else max(LEAST_TEXT_COLUMNS, width - margin - names - GAP)
    lines = []
    for name, value in shown:
        first, *rest = _wrapped(value, room) if room else [value]
        lines += [f"{name.ljust(names)}  {first}", *(" " * (names + GAP) + line for line in rest)]
    return "\n".join(lines)


def _narrow(widths: list[int], right: Sequence[int], width: int) -> None:
    """Take columns from the widest column of text until all of them fit."""
    text = [column for column in range(len(widths)) if column not in right]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    while excess > 0 and text:
        widest = max(text, key=lambda column: widths[column])
        if widths[widest] <= LEAST_TEXT_COLUMNS:
            return
        widths[widest] -= 1
        excess -= 1


def _folded(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    cells = [
        _wrapped(cell, width) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    height = max(len(cell) for cell in cells)
    return [[cell[line] if line < len(cell) else "" for cell in cells] for line in range(height)]


def _wrapped(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
