"""What a sampler may know beside the points: what is trained on what, and what fits."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.throughput import Training
from autotune.throughput.advisor import Chance
from autotune.throughput.coefficients import Prior


@dataclass(frozen=True)
class Knowledge:
    """For samplers that use it.

    Attributes:
        training: model, sequence length, machine.
        chance: that each point's memory suffices, where it is predicted.
        prior: of the coefficients of speed; None: the shipped one.
    """

    training: Training
    chance: Chance | None = None
    prior: Prior | None = None
