"""Samplers: what proposes the next point of a study."""

from autotune.samplers.knowledge import Knowledge
from autotune.samplers.optuna_physics import PhysicsSampler
from autotune.samplers.proposer import Proposer
from autotune.samplers.registry import SAMPLERS, make_sampler

__all__ = ["SAMPLERS", "Knowledge", "PhysicsSampler", "Proposer", "make_sampler"]
