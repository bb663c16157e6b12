"""The warning of commands that predict, where a library is of a version prediction was not checked with."""

from __future__ import annotations

import click


def warn_of_versions() -> None:
    """One line on stderr, where there is something to warn of."""
    from autotune.prediction.checked import version_warning
    from trials.versions import library_versions

    warning = version_warning(library_versions())
    if warning:
        click.echo(f"warning: {warning}", err=True)
