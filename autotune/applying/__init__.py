"""The winner put onto the user's own model, for a training loop of their own: `autotune.apply`."""

from __future__ import annotations

from autotune.applying.apply import apply, optimizer
from autotune.applying.measured import Measured, read_measured

__all__ = ["Measured", "apply", "optimizer", "read_measured"]
