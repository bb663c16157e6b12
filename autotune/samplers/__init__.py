"""Samplers: what proposes the next point of a study."""

from autotune.samplers.proposer import Proposer
from autotune.samplers.registry import SAMPLERS, make_sampler

__all__ = ["SAMPLERS", "Proposer", "make_sampler"]
