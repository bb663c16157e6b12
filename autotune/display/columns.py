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
        _narrow(widths, lines, right, width)
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


def _narrow(widths: list[int], lines: Sequence[Sequence[str]], right: Sequence[int], width: int) -> None:
    """Take from the widest column of text until all fit; where words must be cut for it, only at last."""
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    text = [column for column in range(len(widths)) if column not in right]
    whole = {
        column: max(len(word) for line in lines for word in (line[column].split() or [""])) for column in text
    }
    for floors in (whole, dict.fromkeys(text, LEAST_TEXT_COLUMNS)):
        while excess > 0:
            slack = {column: widths[column] - max(floors[column], LEAST_TEXT_COLUMNS) for column in text}
            loose = [column for column in text if slack[column] > 0]
            if not loose:
                break
            widths[max(loose, key=lambda column: widths[column])] -= 1
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
    # A name is cut only where it has no room at all, and then at a hyphen.
    cut = max(len(word) for word in text.split()) > width
    return textwrap.wrap(text, width, break_long_words=cut, break_on_hyphens=cut) or [""]
