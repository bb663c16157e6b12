"""`autotune init`: a commented configuration file with every flag of `run`, from the flags themselves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from autotune.cli.options import (
    debug_option,
    json_option,
    option,
    progress_options,
    run_options,
    search_options,
)
from autotune.cli.output import print_json, print_text
from autotune.cli.settings import NOT_IN_FILE, flag_name
from autotune.cli.values import SizeType
from autotune.errors import EnvironmentProblem, UsageError

# What a flag without a default might be set to, to show the form.
EXAMPLES: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B",
    "gpu-budget": "24GB",
    "gpu-model": "RTX 4090",
    "seq-len": 1024,
    "space": "lora",
    "host-budget": "64GB",
    "lora-targets": ["q_proj", "v_proj"],
    "trainer": "trl",
    "device": "cuda",
    "study": "my-study",
    "storage": "sqlite:///studies.db",
    "export-dir": "out",
    "nvme-path": ".",
    "log-file": "autotune.log",
}


@search_options
def _shared() -> None:
    """Holds the flags that `run` and `plan` share."""


@run_options
@progress_options
def _own() -> None:
    """Holds the flags of `run` alone."""


class AsTyped(click.ParamType[str]):
    """Checked as the flag's own values are, and kept as the user wrote it."""

    def __init__(self, checked: click.ParamType[Any]) -> None:
        self.checked = checked
        self.name = checked.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        self.checked.convert(value, param, ctx)
        return str(value)


def _options_of(holder: Any) -> list[click.Option]:
    # Decorators add to the list from the last one on.
    return list(reversed(holder.__click_params__))


# Not only `run` must find the studies again.
OF_ALL = ("storage",)
SHARED = [*_options_of(_shared), *(one for one in _options_of(_own) if one.name in OF_ALL)]
OWN = [one for one in _options_of(_own) if one.name not in OF_ALL]


def _prefilled(command: Any) -> Any:
    """Every setting as an optional flag of `init`."""
    for one in reversed([*SHARED, *OWN]):
        if one.name in ("quiet", "verbose"):
            continue
        settings: dict[str, Any] = {"metavar": one.metavar, "help": one.help, "default": None}
        settings |= {"is_flag": True} if one.is_flag else {"type": AsTyped(one.type)}
        command = click.option(one.opts[0], **settings)(command)
    return command


@click.command("init")
@option("--config", "file", metavar="FILE", default="autotune.toml", show_default=True, help="Where to.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@_prefilled
@json_option
@debug_option
def init(file: str, force: bool, as_json: bool, **given: Any) -> int:
    """Write a commented configuration file with all settings of run and plan; flags given here are set in it.

    \b
        autotune init --model Qwen/Qwen2.5-7B --gpu-budget 24GB
        autotune run
    """
    settings = {one.name: given[one.name] for one in [*SHARED, *OWN] if given.get(str(one.name))}
    values = {str(name).replace("_", "-"): value for name, value in settings.items()}
    path = Path(file)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(settings_text(values))
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", "--force overwrites it, --config names another") from error
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}", "give another --config") from error
    print_json({"file": str(path), "settings": values}) if as_json else print_text(str(path))
    return 0


def settings_text(values: dict[str, Any]) -> str:
    """The file's text.

    Args:
        values: what is set, as typed, by flag name; all else is a comment with its default or an example.
    """
    lines = [
        "# Settings of autotune for this folder. Keys are the flags' names; 'autotune run --help' says more.",
        "# A flag wins over the environment (AUTOTUNE_*), that over this file, and it over the defaults.",
        "# Sizes: 24GB and 24GiB are both 24 x 2^30 bytes. Times: 90s, 30m, 8h.",
        "",
        "# --- for every command that has such a flag",
        *_section(SHARED, values),
        "",
        "[run]",
        *_section(OWN, values),
        "",
        "# [plan], [estimate], [explain] ... hold what is for that command alone, before what stands above.",
    ]
    return "\n".join(lines) + "\n"


def _section(options: list[click.Option], values: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for one in options:
        name = flag_name(one)
        if name in NOT_IN_FILE:
            continue
        lines += ["", *(f"# {line}" for line in _explained(one))]
        if name in values:
            lines.append(f"{name} = {_literal(_typed(one, values[name]))}")
        else:
            lines.append(f"# {name} = {_literal(_example(one))}")
    return lines


def _explained(one: click.Option) -> list[str]:
    """The flag's help as sentences: what it is, its default where that is none that a file could hold."""
    text, _, default = (one.help or "").partition("[default: ")
    lines = [text.strip()] if text.strip() else []
    if default:
        lines.append(f"Without it: {default.rstrip(']')}.")
    if isinstance(one.type, click.Choice):
        lines.append("One of " + ", ".join(str(choice) for choice in one.type.choices) + ".")
    return lines


def _example(one: click.Option) -> Any:
    """The default where there is one, else something of the right form."""
    if one.is_flag:
        return False
    default = one.to_info_dict().get("default")
    if isinstance(default, (str, int, float)) and not isinstance(default, bool):
        return _typed(one, str(default))
    if flag_name(one) in EXAMPLES:
        return EXAMPLES[flag_name(one)]
    if isinstance(one.type, click.Choice):
        return str(one.type.choices[0])
    return "24GB" if isinstance(one.type, SizeType) else ""


def _typed(one: click.Option, text: Any) -> Any:
    """What was typed as the kind of value that the file has for it."""
    if one.is_flag:
        return bool(text)
    with contextlib.suppress(ValueError):
        number = float(text)
        if isinstance(one.type, click.types.IntParamType):
            return int(number)
        if isinstance(one.type, click.types.FloatParamType):
            return number
        if flag_name(one) == "global-batch":
            return int(number)
    return text


def _literal(value: Any) -> str:
    """The value in TOML."""
    import json

    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(one) for one in value) + "]"
    # TOML's basic strings are JSON's, but for the one character that JSON leaves unescaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
