"""Models: the shipped cards, and whatever else a name may stand for (hub id, folder, config.json)."""

from __future__ import annotations

from autotune.models.card import Card, find_card, list_cards
from autotune.models.limits import ModelLimits, model_limits
from autotune.models.resolve import resolve_model, resolve_with_notes

__all__ = [
    "Card",
    "ModelLimits",
    "find_card",
    "list_cards",
    "model_limits",
    "resolve_model",
    "resolve_with_notes",
]
