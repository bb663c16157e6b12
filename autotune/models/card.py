"""Model cards: the shapes of published models, shipped so that tuning needs no network."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import Any

from pydantic import Field

from autotune.models.limits import max_positions
from trials.wire import Strict


class Card(Strict):
    """A published model's shape, under a short name and its hub ids."""

    name: str = Field(description="lower case; also the name of the card's file")
    hub_id: str | None = Field(description="the repository whose weights belong to it; None: there are none")
    aliases: tuple[str, ...] = Field((), description="further hub ids of the same shape")
    family: str
    parameters: int = Field(description="published count; a tied embedding counts once")
    parameters_source: str = Field(description="where the count was published")
    parameters_tolerance: float = Field(
        0.0, ge=0.0, le=0.01, description="relative; above 0 only where the published count is not exact"
    )
    note: str = Field("", description="where the card departs from the hub's config.json, and why")
    config: dict[str, Any] = Field(description="the transformers config.json, as transformers 5 writes it")

    @property
    def seq_len_max(self) -> int | None:
        """Longest sequence in tokens; None where the architecture has no limit."""
        return max_positions(self.config)

    @property
    def hub_ids(self) -> tuple[str, ...]:
        """Every hub id the card answers to, its own first."""
        return (() if self.hub_id is None else (self.hub_id,)) + self.aliases


@lru_cache(maxsize=1)
def list_cards() -> tuple[Card, ...]:
    """All shipped cards, by family and then by size."""
    folder = resources.files("autotune.models.cards")
    cards = [
        Card.model_validate(json.loads(file.read_text(encoding="utf-8")))
        for file in folder.iterdir()
        if file.name.endswith(".json")
    ]
    return tuple(sorted(cards, key=lambda card: (card.family, card.parameters, card.name)))


def find_card(name: str) -> Card | None:
    """The card that answers to a card name or a hub id, whatever the case; None if there is none."""
    return _cards_by_name().get(name.casefold())


@lru_cache(maxsize=1)
def _cards_by_name() -> dict[str, Card]:
    by_name: dict[str, Card] = {}
    for card in list_cards():
        for name in (card.name, *card.hub_ids):
            assert name.casefold() not in by_name, f"two cards answer to {name}"
            by_name[name.casefold()] = card
    return by_name
