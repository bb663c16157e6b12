"""`autotune models`: the shipped model cards."""

from __future__ import annotations

import click

from autotune.cli.options import debug_option, json_option
from autotune.cli.output import print_json, print_text
from autotune.errors import UsageError


@click.command("models")
@click.argument("words", nargs=-1, metavar="[FILTER]...")
@json_option
@debug_option
def models(words: tuple[str, ...], as_json: bool) -> int:
    """The model cards that are shipped. FILTER: words that a name, hub id or family must all hold."""
    from autotune.display.columns import table
    from autotune.models import list_cards

    def matches(text: str) -> bool:
        return all(word.lower() in text.lower() for word in words)

    cards = [card for card in list_cards() if matches(f"{card.name} {card.hub_id or ''} {card.family}")]
    if not cards and not as_json:
        raise UsageError(
            f"no card matches {' '.join(words)!r}",
            "'autotune models' lists all; --model also takes any hub id",
        )
    if as_json:
        print_json(
            [
                {
                    "name": card.name,
                    "hub_id": card.hub_id,
                    "family": card.family,
                    "parameters": card.parameters,
                    "seq_len_max": card.seq_len_max,
                }
                for card in cards
            ]
        )
        return 0
    rows = [
        [card.name, f"{card.parameters:,}", _tokens(card.seq_len_max), card.family, card.hub_id or "-"]
        for card in cards
    ]
    print_text(table(["name", "parameters", "tokens", "family", "hub id"], rows, right=(1, 2)))
    return 0


def _tokens(seq_len: int | None) -> str:
    return "-" if seq_len is None else f"{seq_len:,}"
