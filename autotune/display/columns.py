"""Plain text tables: aligned, never cut, fit for a terminal, a file and `grep`."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Columns two spaces apart.

    Args:
        header: one title per column.
        rows: the cells; each row as long as the header.
        right: the indices of columns that are aligned to the right.

    Returns:
        The header and one line per row, without a final line end.
    """
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """One `name  value` line per pair, the values aligned; pairs with an empty value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown)
