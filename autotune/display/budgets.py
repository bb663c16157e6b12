"""What budgets buy, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.display.columns import table
from autotune.display.words import point_words, size_words, speed_words
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.planning.curve import Bought, Curve

BAR_WIDTH = 24
_LIMITS = {
    "device": "device memory: more would buy a faster one",
    "host": "host memory: more would buy a faster one",
    None: "none: more memory buys nothing",
}


def curve_text(curve: Curve, gpu: str) -> str:
    """The budgets asked about, and the curve from the smallest card to the largest.

    Args:
        curve: what was found.
        gpu: whose speed was predicted.
    """
    parts = []
    if curve.asked:
        rows = [_row(bought) for bought in curve.asked]
        parts.append(
            table(["budget", "rough speed", "needs", "configuration", "what binds"], rows, right=(1, 2))
        )
    parts.append(f"from 8 to 141 GiB, where another configuration becomes the best\n{_steps(curve.steps)}")
    parts.append(f"speeds as of {gpu}, from the model alone; 'autotune run' measures")
    return "\n\n".join(parts)


def _row(bought: Bought) -> list[str]:
    budget = format_size(bought.budget_bytes)
    if bought.best is None:
        if bought.nearest is None:
            return [budget, "-", "-", "nothing fits", ""]
        needed = bought.nearest.prediction
        missing = needed.host_peak_bytes if bought.limit == "host" else needed.required_device_bytes
        return [budget, "-", size_words(missing), "nothing fits", f"{bought.limit} memory"]
    return [
        budget,
        "~" + speed_words(bought.best.tokens_per_second),
        size_words(bought.best.prediction.required_device_bytes),
        point_words(bought.best.point),
        _LIMITS[bought.limit],
    ]


def _steps(steps: Sequence[Bought]) -> str:
    most = max((bought.best.tokens_per_second or 0.0 for bought in steps if bought.best), default=0.0)
    rows = []
    for bought in steps:
        speed = (bought.best.tokens_per_second or 0.0) if bought.best else 0.0
        bar = "#" * round(BAR_WIDTH * speed / most) if most else ""
        words = point_words(bought.best.point) if bought.best else "nothing fits"
        rows.append([f"  {format_size(bought.budget_bytes)}", "~" + speed_words(speed), bar, words])
    return "\n".join(table(["  from", "", "", ""], rows, right=(1,)).splitlines()[1:])
