"""`autotune completion`: the script that makes a shell complete commands, flags, models, GPUs and studies."""

from __future__ import annotations

import click

from autotune.cli.options import debug_option, json_option
from autotune.cli.output import print_json, print_text

VARIABLE = "_AUTOTUNE_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@json_option
@debug_option
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> int:
    """Print the script that makes SHELL complete commands, flags, model cards, spaces, GPUs and studies.

    \b
        bash  autotune completion bash > ~/.local/share/bash-completion/completions/autotune
        zsh   autotune completion zsh > a folder of your fpath, as _autotune
        fish  autotune completion fish > ~/.config/fish/completions/autotune.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    script = kind(ctx.find_root().command, {}, "autotune", VARIABLE).source()
    print_json({"shell": shell, "script": script}) if as_json else print_text(script)
    return 0
