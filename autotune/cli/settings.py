"""Settings from a configuration file: between the environment and the defaults, checked as strictly as flags.

Every command that the file may speak of gets `--config` when it is loaded, so that a new flag is a new key
without another word.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from autotune.cli.values import DurationType, GlobalBatchType, NamesType, SizeType
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.settings import SettingsFile

VARIABLE = "AUTOTUNE_CONFIG"
# What these print does not depend on any setting, or they write the file themselves.
WITHOUT_FILE = frozenset({"init", "completion", "models", "spaces", "doctor"})
# They say how an error is shown and where settings are: too late in the file itself.
NOT_IN_FILE = frozenset({"debug", "config", "help"})
# Two ways to say one thing: the one that was given closer to the command line wins.
RIVALS = (("gpu_budget", "gpu_model"), ("quiet", "verbose"))


def configurable(command: click.Command) -> click.Command:
    """The command with `--config`, which is read before its other flags; a group's commands each have it."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            configurable(one)
        return command
    if command.name in WITHOUT_FILE or any(parameter.name == "config" for parameter in command.params):
        return command
    command.params.insert(_before_debug(command), _config_option())
    if command.callback is not None:
        command.callback = _settled(command.callback)
    return command


def settings_of(command: click.Command) -> dict[str, click.Option]:
    """The flags of a command that the file may set, by their names without the dashes in front.

    A group has those of all its commands: its table in the file is for all of them.
    """
    if isinstance(command, click.Group):
        return {key: one for sub in command.commands.values() for key, one in settings_of(sub).items()}
    return {
        flag_name(parameter): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and flag_name(parameter) not in NOT_IN_FILE
    }


def flag_name(parameter: click.Parameter) -> str:
    """`gpu-budget` of `--gpu-budget`."""
    return parameter.opts[0].lstrip("-")


def _config_option() -> click.Option:
    return click.Option(
        ["--config"],
        metavar="FILE",
        envvar=VARIABLE,
        is_eager=True,
        expose_value=False,
        callback=_load,
        help="Settings, below flags and environment.  [default: autotune.toml here, if there is one]",
    )


def _before_debug(command: click.Command) -> int:
    names = [parameter.name for parameter in command.params]
    return names.index("debug") if "debug" in names else len(names)


def _load(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if ctx.resilient_parsing:
        return value
    if value is None:
        value = ctx.find_root().params.get("config")
    from autotune.settings import DEFAULT_NAME, read_settings

    path = Path(DEFAULT_NAME) if value is None else Path(value)
    if value is None and not os.path.lexists(path):
        return value
    file = read_settings(path)
    commands = dict(_commands(ctx))
    _check_names(file, commands)
    ctx.default_map = {**(ctx.default_map or {}), **_defaults(file, ctx, commands)}
    return value


def _commands(ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = ctx.find_root().command
    if not isinstance(group, click.Group):
        yield str(ctx.command.name), ctx.command
        return
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None and name not in WITHOUT_FILE:
            yield name, command


def _check_names(file: SettingsFile, commands: Mapping[str, click.Command]) -> None:
    for table, values in file.tables.items():
        if table not in commands:
            _unknown(file, table, "", f"there is no command {table!r} to set anything for", table, commands)
        known = settings_of(commands[table])
        for key in values:
            if key not in known:
                _unknown(file, table, key, f"'autotune {table}' has no setting {key!r}", key, known)
    everything = {key for command in commands.values() for key in settings_of(command)}
    for key in file.shared:
        if key not in everything:
            _unknown(file, "", key, f"no command has a setting {key!r}", key, everything)


def _unknown(file: SettingsFile, table: str, key: str, problem: str, name: str, known: Any) -> NoReturn:
    close = get_close_matches(name, sorted(known), n=1)
    only = "it is for the command line" if name in NOT_IN_FILE else "'autotune init' writes all there are"
    raise UsageError(f"{file.where(table, key)}: {problem}", f"did you mean {close[0]}?" if close else only)


def _defaults(
    file: SettingsFile, ctx: click.Context, commands: Mapping[str, click.Command]
) -> dict[str, Any]:
    """The file's values for the command that runs, by parameter name; its own table before what is shared."""
    found: dict[str, Any] = {}
    table_name = _table_of(ctx)
    own = file.tables.get(table_name, {})
    settings = settings_of(ctx.command)
    for key, value in file.shared.items():
        if key in own:
            continue
        problems = {
            name: problem_of(settings_of(command)[key], value, ctx)
            for name, command in commands.items()
            if key in settings_of(command)
        }
        if all(problems.values()):
            raise UsageError(f"{file.where('', key)}: {key} {next(iter(problems.values()))}")
        # `method = "auto"` is for run and plan; estimate has no such method and goes without.
        if key in settings and not problems.get(table_name):
            found[str(settings[key].name)] = click_value(settings[key], value)
    for table, values in file.tables.items():
        for key, value in values.items():
            parameter = settings_of(commands[table])[key]
            problem = problem_of(parameter, value, ctx)
            if problem:
                raise UsageError(f"{file.where(table, key)}: {key} {problem}")
            if values is own and key in settings:
                found[str(parameter.name)] = click_value(parameter, value)
    return found


def _table_of(ctx: click.Context) -> str:
    """The command's table in the file: its own name, or that of the group that it belongs to."""
    above = ctx.parent
    inside = above is not None and above.parent is not None
    return str((above if inside and above else ctx).command.name)


def problem_of(parameter: click.Option, value: Any, ctx: click.Context) -> str:
    """What is wrong with a value of the file for a flag; empty where nothing is."""
    wanted = _wanted(parameter, value)
    if wanted:
        return f"takes {wanted}, not {_shown(value)}"
    if parameter.is_flag:
        return ""
    given = click_value(parameter, value)
    try:
        for one in given if parameter.multiple else (given,):
            parameter.type.convert(one, parameter, ctx)
    except click.BadParameter as error:
        return f"is refused: {error.message.rstrip('.')}"
    return ""


def click_value(parameter: click.Option, value: Any) -> Any:
    """A value of the file as click converts it: sizes without a unit as text, names joined by commas."""
    if parameter.multiple:
        return tuple(value) if isinstance(value, list) else (value,)
    if isinstance(value, list):
        return ",".join(str(one) for one in value)
    if isinstance(parameter.type, (SizeType, DurationType)):
        return str(value)
    own = type(parameter.type).__module__.startswith("autotune.")
    return str(value) if own and isinstance(value, (int, float)) else value


def _wanted(parameter: click.Option, value: Any) -> str:
    """The kind of value that a flag takes, in words, where this one is another."""
    kind = parameter.type
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if parameter.is_flag:
        return "" if isinstance(value, bool) else "true or false"
    if parameter.multiple and isinstance(value, list):
        return "" if all(isinstance(one, str) for one in value) else "a list of texts"
    if isinstance(kind, NamesType):
        names = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return "" if names or isinstance(value, str) else 'a list of names, such as ["q_proj"]'
    if isinstance(kind, GlobalBatchType):
        return "" if whole or isinstance(value, str) else 'a whole number or "any"'
    if isinstance(kind, SizeType):
        return "" if number or isinstance(value, str) else 'a size, such as "24GB"'
    if isinstance(kind, DurationType):
        return "" if isinstance(value, str) else 'a length of time, such as "8h"'
    if isinstance(kind, (click.types.IntParamType, click.IntRange)):
        return "" if whole else "a whole number"
    if isinstance(kind, (click.types.FloatParamType, click.FloatRange)):
        return "" if number else "a number"
    if isinstance(value, str):
        return ""
    if isinstance(kind, (click.types.StringParamType, click.Choice, click.Path)):
        return "a text"
    # A kind of value of our own, which reads what a flag would be given.
    listed = isinstance(value, list) and all(isinstance(one, (str, int, float)) for one in value)
    return "" if number or listed else "a text"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    if isinstance(value, (int, float)):
        return str(value)
    return repr(value) if isinstance(value, str) and len(value) < 40 else f"a {type(value).__name__}"


def _settled(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The command's function, called without the values that a closer one overrules."""

    @functools.wraps(callback)
    def call(*args: Any, **values: Any) -> Any:
        ctx = click.get_current_context()
        for pair in RIVALS:
            given = [name for name in pair if values.get(name)]
            if len(given) == 2:
                # The closer to the command line, the lower.
                first, second = (_source(ctx, name) for name in pair)
                if first != second:
                    loser = pair[0] if first > second else pair[1]
                    values[loser] = False if values[loser] is True else None
        return callback(*args, **values)

    return call


def is_from_file(ctx: click.Context, name: str) -> bool:
    """Whether a value is the configuration file's."""
    return _source(ctx, name) is ParameterSource.DEFAULT_MAP


def _source(ctx: click.Context, name: str) -> ParameterSource:
    return ctx.get_parameter_source(name) or ParameterSource.DEFAULT
