"""`autotune spaces`: the shipped search spaces, or the values of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from autotune.cli.completing import complete_spaces
from autotune.cli.options import debug_option, json_option
from autotune.cli.output import print_json, print_text

if TYPE_CHECKING:
    from autotune.space import Space
    from autotune.space.setting import RequestedMethod


@click.command("spaces")
@click.argument("name", required=False, shell_complete=complete_spaces)
@json_option
@debug_option
def spaces(name: str | None, as_json: bool) -> int:
    """The shipped search spaces, or the values and the number of distinct points of one.

    NAME: a shipped space, or a YAML file of yours to be checked.
    """
    from autotune.space import load_space, shipped_spaces

    found = [describe(load_space(one)) for one in ([name] if name else shipped_spaces())]
    if as_json:
        print_json(found[0] if name else found)
    else:
        print_text(_one_text(found[0]) if name else _all_text(found))
    return 0


def describe(space: Space) -> dict[str, Any]:
    """The space as plain values, with its points for the defaults on a GPU with every optional package."""
    from autotune.space import enumerate_points

    found = enumerate_points(space, _default_setting(space))
    return {
        "name": space.name,
        "values": {field: list(values) for field, values in space.values.items()},
        "points": len(found.points),
        "lost": dict(found.lost),
    }


def _default_setting(space: Space) -> Any:
    from autotune.space import Capabilities, Setting
    from autotune.space.setting import RequestedMethod

    method: RequestedMethod = space.name if space.name in get_args(RequestedMethod) else "any"  # type: ignore[assignment]
    everything = Capabilities(
        device="cuda", bf16=True, fp16=True, flash_attention_2=True, liger=True, bitsandbytes=True, nvme=False
    )
    return Setting(
        method=method,
        global_batch=32,
        exact_global_batch=False,
        gpus=1,
        min_rank=16,
        capabilities=everything,
    )


def _all_text(found: list[dict[str, Any]]) -> str:
    from autotune.display.columns import table

    rows = [[one["name"], f"{one['points']:,}", ", ".join(one["values"])] for one in found]
    return table(["name", "points", "searched"], rows, right=(1,))


def _one_text(one: dict[str, Any]) -> str:
    from autotune.display.columns import fields, table

    values = [(field, ", ".join(str(value) for value in listed)) for field, listed in one["values"].items()]
    parts = [
        f"{one['name']}: {one['points']:,} distinct points at the defaults"
        " (global batch 32, rank 16 or more, a GPU)",
        fields(values),
    ]
    if one["lost"]:
        rows = [[f"{count:,}", reason] for reason, count in one["lost"].items()]
        parts.append("combinations that are no points\n" + table(["count", "reason"], rows, right=(0,)))
    return "\n\n".join(parts)
