"""Which measured configuration wins, and what the quality knobs cost."""

from __future__ import annotations

from autotune.winner.choice import choose_winner, overlapping, tied_with
from autotune.winner.prices import Price, price_list
from autotune.winner.ranking import Measured, ranking

__all__ = ["Measured", "Price", "choose_winner", "overlapping", "price_list", "ranking", "tied_with"]
