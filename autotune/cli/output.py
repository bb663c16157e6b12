"""Results on stdout: text or one JSON object, whole or not at all, and silent when the reader has gone."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sys
from typing import Any


def plain_json(value: Any) -> Any:
    """The value with NaN and infinities as null, which JSON has no words for; tuples become lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return value


def print_json(value: Any) -> None:
    """One JSON value on a line of its own."""
    print_text(json.dumps(plain_json(value), allow_nan=False))


def print_text(text: str) -> None:
    """Write to stdout and flush.

    A closed pipe (`| head`) or terminal is no error: the rest of the output is dropped and the command
    keeps its exit code. Any other failure to write, such as a full disk, is raised.
    """
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        # A terminal that was closed in the meantime.
        if error.errno != errno.EIO:
            raise
        drop_stdout()
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        print_text(text.encode(encoding, "replace").decode(encoding))


def drop_stdout() -> None:
    """Point stdout at nothing, so that neither later writes nor the interpreter's last flush complain."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
