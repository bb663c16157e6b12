"""What the shell offers: model cards, spaces, GPUs, studies; and files where a path may stand too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from autotune.errors import AutotuneError


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Cards by name and by hub id, and files."""
    if incomplete.startswith((".", "/", "~")):
        return _files(incomplete)
    from autotune.models import list_cards

    names = [(name, f"{card.parameters:,} parameters") for card in list_cards() for name in _names(card)]
    return _matching(names, incomplete) or _files(incomplete)


def complete_spaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shipped spaces, and files."""
    from autotune.space import shipped_spaces

    return _matching([(name, "shipped") for name in shipped_spaces()], incomplete) or _files(incomplete)


def complete_gpus(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """GPUs, written without blanks, which shells would take for the end of the word."""
    from autotune.gpus import list_gpus
    from autotune.sizes import format_size

    names = [(word_of_gpu(gpu.name), format_size(gpu.memory_bytes)) for gpu in list_gpus()]
    return _matching(names, incomplete.replace(" ", "-"))


def word_of_gpu(name: str) -> str:
    """`RTX-4090` of `NVIDIA GeForce RTX 4090`, which `--gpu-model` takes as well."""
    for maker in ("NVIDIA ", "GeForce ", "Tesla "):
        name = name.removeprefix(maker)
    return name.replace(" ", "-")


def complete_studies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Studies of the storage that the command line or the environment names, the last one first."""
    from autotune.study import default_storage_url, list_studies

    try:
        studies = list_studies(ctx.params.get("storage") or default_storage_url())
    except AutotuneError:
        # A shell that waits for words has no place for an error; the command itself will tell it.
        return []
    return _matching([(study.name, study.inputs.model) for study in reversed(studies)], incomplete)


def _names(card: Any) -> tuple[str, ...]:
    return (card.name, card.hub_id) if card.hub_id else (card.name,)


def _matching(names: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    start = incomplete.casefold()
    return [CompletionItem(name, help=text) for name, text in names if name.casefold().startswith(start)]


def _files(incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]
