"""The samplers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from autotune.errors import UsageError
from autotune.samplers.gp import GpProposer
from autotune.samplers.grid import GridProposer
from autotune.samplers.knowledge import Knowledge
from autotune.samplers.physics import PhysicsProposer
from autotune.samplers.proposer import Proposer
from autotune.samplers.random import RandomProposer
from autotune.samplers.tpe import TpeProposer
from trials.wire import Point

SAMPLERS: dict[str, Callable[[Sequence[Point], int, Knowledge], Proposer]] = {
    "physics": PhysicsProposer,
    "tpe": lambda points, seed, _: TpeProposer(points, seed),
    "gp": lambda points, seed, _: GpProposer(points, seed),
    "random": lambda points, seed, _: RandomProposer(points, seed),
    "grid": lambda points, seed, _: GridProposer(points, seed),
}


def make_sampler(name: str, space_points: Sequence[Point], seed: int, knowledge: Knowledge) -> Proposer:
    """Makes a sampler.

    Args:
        name: physics, tpe, gp, random or grid.
        space_points: all points of the space.
        seed: of all its random choices.
        knowledge: what is trained, on what; of use to `physics` alone.

    Raises:
        UsageError: there is no such sampler.
    """
    if name not in SAMPLERS:
        close = get_close_matches(name.lower(), list(SAMPLERS), n=1)
        hint = f"did you mean {close[0]}?" if close else "one of: " + ", ".join(SAMPLERS)
        raise UsageError(f"there is no sampler {name!r}", hint)
    return SAMPLERS[name](space_points, seed, knowledge)
