"""How wide results may be: as wide as the terminal, and elsewhere as wide as they are."""

from __future__ import annotations

import shutil
import sys

LEAST_COLUMNS = 40


def stdout_columns() -> int | None:
    """Columns of the terminal that results go to; None where they go into a file or a pipe, uncut."""
    if not sys.stdout.isatty():
        return None
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)
