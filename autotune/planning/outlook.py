"""One predicted point against the budgets: whether it fits, and which limit binds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from autotune.prediction.prediction import Prediction
from trials.wire import Point

Limit = Literal["device", "host"]


@dataclass(frozen=True)
class Budgets:
    """What a configuration may take, for one process. None: no limit.

    Attributes:
        device_bytes: device memory.
        host_bytes: host memory.
    """

    device_bytes: int | None = None
    host_bytes: int | None = None


@dataclass(frozen=True)
class Outlook:
    """A point with its prediction.

    Attributes:
        point: the configuration.
        prediction: its memory.
        limit: the budget it breaks; None where it fits.
        tokens_per_second: a rough estimate, for ranking; None where there was nothing to estimate it from.
    """

    point: Point
    prediction: Prediction
    limit: Limit | None
    tokens_per_second: float | None = None

    @property
    def fits(self) -> bool:
        """Whether it stays inside every budget."""
        return self.limit is None

    def as_json(self) -> dict[str, Any]:
        """The point, the figures of `autotune estimate`, and what was made of them."""
        return {
            "point": self.point.model_dump(mode="json"),
            "method": self.point.method,
            **prediction_json(self.prediction),
            "fits": self.fits,
            "limit": self.limit,
            "estimated_tokens_per_second": self.tokens_per_second,
        }


def broken_limit(prediction: Prediction, budgets: Budgets) -> Limit | None:
    """The first budget that a prediction breaks."""
    if budgets.device_bytes is not None and prediction.required_device_bytes > budgets.device_bytes:
        return "device"
    if budgets.host_bytes is not None and prediction.host_peak_bytes > budgets.host_bytes:
        return "host"
    return None


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """The keys of DESIGN's `autotune estimate`, and the rest of what is known."""
    return prediction.model_dump(mode="json")
