"""The samplers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from autotune.errors import UsageError
from autotune.samplers.gp import GpProposer
from autotune.samplers.grid import GridProposer
from autotune.samplers.proposer import Proposer
from autotune.samplers.random import RandomProposer
from autotune.samplers.tpe import TpeProposer
from trials.wire import Point

SAMPLERS: dict[str, Callable[[Sequence[Point], int], Proposer]] = {
    "tpe": TpeProposer,
    "gp": GpProposer,
    "random": RandomProposer,
    "grid": GridProposer,
}


def make_sampler(name: str, space_points: Sequence[Point], seed: int) -> Proposer:
    """Makes a sampler.

    Args:
        name: tpe, gp, random or grid.
        space_points: all points of the space.
        seed: of all its random choices.

    Raises:
        UsageError: there is no such sampler.
    """
    if name not in SAMPLERS:
        close = get_close_matches(name.lower(), list(SAMPLERS), n=1)
        hint = f"did you mean {close[0]}?" if close else "one of: " + ", ".join(SAMPLERS)
        raise UsageError(f"there is no sampler {name!r}", hint)
    return SAMPLERS[name](space_points, seed)
