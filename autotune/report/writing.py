"""Writing the page: whole or not at all."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from autotune.errors import EnvironmentProblem

OTHER_PLACE = "give another --output, or make room"


def check_place(path: Path) -> None:
    """Whether a page can be put there; to be asked before it is made.

    Raises:
        EnvironmentProblem: there is no such folder, or the path is a folder itself.
    """
    if path.is_dir():
        raise EnvironmentProblem(f"cannot write {path}: it is a folder", "name a file: --output report.html")
    if not path.parent.is_dir():
        raise EnvironmentProblem(f"cannot write {path}: there is no folder {path.parent}", "create it first")


def write_page(path: Path, text: str, hint: str = OTHER_PLACE) -> int:
    """Write a page beside its place and move it there, so that what was there stays until the page is whole.

    Args:
        path: a file, which is replaced, or a device or pipe, which is written to.
        text: the page.
        hint: what to do where it cannot be written.

    Returns:
        Its size in bytes.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    # A path of the command line may hold bytes that are no text.
    content = text.encode("utf-8", "replace")
    target = path.resolve()
    temporary = target.with_name(f".autotune-{uuid.uuid4().hex}.html")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return len(content)
        try:
            temporary.write_bytes(content)
            temporary.replace(target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror or error}", hint) from error
    return len(content)
