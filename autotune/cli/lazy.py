"""A click group whose commands are imported when they are used, so that `autotune --help` stays fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class LazyCommand:
    """Where a command lives, and its line in `autotune --help`.

    Attributes:
        module: the module that defines it.
        attribute: the click command's name there.
        summary: one line, shown without importing the module.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group over a table of `LazyCommand`."""

    def __init__(self, *args: Any, lazy_commands: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy_commands = dict(lazy_commands)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the table's order, which follows the work and not the alphabet."""
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, None where there is no such command."""
        # Not for `--help`, which needs no command.
        from autotune.cli.settings import configurable

        entry = self.lazy_commands.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command), f"{entry.module}.{entry.attribute} is not a command"
        return configurable(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with close matches: click would look for them among commands it has loaded."""
        name = args[0]
        if name in self.lazy_commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        close = get_close_matches(name, self.lazy_commands, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise click.UsageError(f"no such command {name!r}{hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table's own summaries: click would import every command for its help text."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.lazy_commands.items()])
