"""Search spaces: what may be tried, which combinations are possible, and why the others are not."""

from autotune.space.conditions import violation
from autotune.space.enumeration import Enumeration, enumerate_points, neutral_point
from autotune.space.loading import load_space, parse_space, shipped_spaces, space_for_method
from autotune.space.setting import Capabilities, Setting
from autotune.space.space import Space
from autotune.space.trainers import trainers

__all__ = [
    "Capabilities",
    "Enumeration",
    "Setting",
    "Space",
    "enumerate_points",
    "load_space",
    "neutral_point",
    "parse_space",
    "shipped_spaces",
    "space_for_method",
    "trainers",
    "violation",
]
