"""The warning of commands that predict, where a library is of a version prediction was not checked with."""

from __future__ import annotations

from collections.abc import Callable

import click


def warn_of_versions(say: Callable[[str], None] | None = None) -> None:
    """One line, where there is something to warn of; on stderr, where nobody else says it."""
    from autotune.prediction.checked import version_warning
    from trials.versions import library_versions

    warning = version_warning(library_versions())
    if warning:
        text = f"warning: {warning}"
        click.echo(text, err=True) if say is None else say(text)
