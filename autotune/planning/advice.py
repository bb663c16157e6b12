"""Why a group of points does not fit, and the least change that would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.planning.outlook import Budgets, Outlook
from autotune.sizes import format_shortage, format_size
from trials.wire import Point

# What makes a group: the knobs that decide which states there are; the others only size them.
GROUP_FIELDS = ("method", "zero_stage", "offload", "quantization", "optimizer")
LARGEST_PIECES = 3


@dataclass(frozen=True)
class Rejection:
    """A group of points that do not fit.

    Attributes:
        group: the fields they share, and their values.
        count: how many points.
        nearest: the one that lacks least.
        why: what it needs and of what that is made.
        remedy: the smallest change that fits; empty where no single one does.
    """

    group: dict[str, Any]
    count: int
    nearest: Outlook
    why: str
    remedy: str

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "group": self.group,
            "count": self.count,
            "nearest": self.nearest.as_json(),
            "why": self.why,
            "remedy": self.remedy,
        }


def rejections(outlooks: Sequence[Outlook], budgets: Budgets) -> list[Rejection]:
    """The groups of points that do not fit, the one that lacks least first."""
    groups: dict[tuple[Any, ...], list[Outlook]] = defaultdict(list)
    for outlook in outlooks:
        if not outlook.fits:
            groups[tuple(getattr(outlook.point, name) for name in GROUP_FIELDS)].append(outlook)
    fitting = [outlook.point for outlook in outlooks if outlook.fits]
    found = []
    for key, members in groups.items():
        closest = nearest(members, budgets)
        found.append(
            Rejection(
                group=dict(zip(GROUP_FIELDS, key, strict=True)),
                count=len(members),
                nearest=closest,
                why=reason(closest, budgets),
                remedy=remedy(closest.point, fitting),
            )
        )
    return sorted(found, key=lambda one: _missing(one.nearest, budgets))


def nearest(outlooks: Iterable[Outlook], budgets: Budgets) -> Outlook:
    """Of points that do not fit, the one that lacks least; there must be one."""
    return min(outlooks, key=lambda outlook: _missing(outlook, budgets))


def reason(outlook: Outlook, budgets: Budgets) -> str:
    """`needs 31.2 of 24.0 GiB: logits 9.3 GiB, weights 12.6 GiB`."""
    prediction = outlook.prediction
    if outlook.limit == "host":
        assert budgets.host_bytes is not None
        return f"needs {format_shortage(prediction.host_peak_bytes, budgets.host_bytes)} host memory"
    pieces = sorted(prediction.breakdown.items(), key=lambda item: -item[1])[:LARGEST_PIECES]
    named = ", ".join(f"{name} {format_size(size)}" for name, size in pieces)
    needed, budget = prediction.required_device_bytes, budgets.device_bytes
    needs = format_size(needed) if budget is None else format_shortage(needed, budget)
    return f"needs {needs}: {named}"


def remedy(point: Point, fitting: Iterable[Point]) -> str:
    """The fitting point that differs least, as what to change."""
    best: list[str] | None = None
    for other in fitting:
        changes = [
            f"{name} {getattr(other, name)}"
            for name in Point.model_fields
            # Accumulation follows from the micro batch.
            if name != "gradient_accumulation_steps" and getattr(other, name) != getattr(point, name)
        ]
        if best is None or len(changes) < len(best):
            best = changes
            if len(changes) == 1:
                break
    return f"try {' and '.join(best)}" if best and len(best) <= 2 else ""


def _missing(outlook: Outlook, budgets: Budgets) -> float:
    """By what factor it breaks the limit that binds."""
    if outlook.limit == "host":
        assert budgets.host_bytes is not None
        return outlook.prediction.host_peak_bytes / budgets.host_bytes
    if budgets.device_bytes is None:
        return 0.0
    return outlook.prediction.required_device_bytes / budgets.device_bytes
