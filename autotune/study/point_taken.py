"""Two processes that tune one study can come to the same point at the same moment."""

from __future__ import annotations

from autotune.errors import EnvironmentProblem


class PointTaken(EnvironmentProblem):
    """Another live process has begun the same point first; propose again with fresh records."""
