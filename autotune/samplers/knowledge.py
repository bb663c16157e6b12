"""What a sampler may know beside the points: what is trained on what, and what fits."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.throughput import Training
from autotune.throughput.advisor import Chance
from autotune.throughput.belief import Observation
from autotune.throughput.coefficients import Prior


@dataclass(frozen=True)
class Knowledge:
    """For samplers that use it.

    Attributes:
        training: model, sequence length, machine.
        chance: that each point's memory suffices, where it is predicted.
        prior: of the coefficients of speed; None: the shipped one.
        known: speeds of this training that were measured before, elsewhere.
    """

    training: Training
    chance: Chance | None = None
    prior: Prior | None = None
    known: tuple[Observation, ...] = ()
