"""What a prediction can fail with."""

from __future__ import annotations

from autotune.errors import AutotuneError


class PredictionUnavailable(AutotuneError):
    """The model or the point cannot be traced: its memory is only known by measuring."""


class WorkerDied(AutotuneError):
    """The tracing process ended without an answer."""


class Refused(PredictionUnavailable):
    """The trial's own code refuses to build the model so: every engine setting of it fails alike."""
