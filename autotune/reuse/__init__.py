"""What was learned in other studies, carried over to a new one, and given up where it does not hold."""

from autotune.reuse.agreement import Judgement, Tried, judged
from autotune.reuse.effects import KnobEffects, knob_effects
from autotune.reuse.first_points import FirstPoint, first_points
from autotune.reuse.observations import PriorObservation, prior_observations
from autotune.reuse.profile import Profile, profile_of
from autotune.reuse.similar import Similar
from autotune.reuse.similarity import Similarity, similarity

__all__ = [
    "FirstPoint",
    "Judgement",
    "KnobEffects",
    "PriorObservation",
    "Profile",
    "Similar",
    "Similarity",
    "Tried",
    "first_points",
    "judged",
    "knob_effects",
    "prior_observations",
    "profile_of",
    "similarity",
]
