"""Predicted beside measured, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.display.columns import table
from autotune.display.words import phase_words
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.tuning.comparison import Compared

FIGURE_WORDS = {
    "peak_allocated_bytes": "peak allocated",
    "setup_peak_allocated_bytes": "while setting up",
    "required_device_bytes": "needs",
    "device_bytes": "held on the device",
    "outside_allocator_bytes": "outside the allocator",
    "host_peak_bytes": "host memory",
}


def comparison_text(figures: Sequence[Compared]) -> str:
    """One line per figure: predicted, measured, and by how much the prediction is off."""
    rows = [
        [
            figure_words(one.figure),
            format_size(one.predicted_bytes),
            format_size(one.measured_bytes),
            off_words(one.off),
        ]
        for one in figures
    ]
    return table(["memory", "predicted", "measured", "off by"], rows, right=(1, 2, 3))


def figure_words(figure: str) -> str:
    """A figure of a trial's result in words; a phase is the peak allocated in it."""
    return FIGURE_WORDS.get(figure) or f"peak in {phase_words(figure)}"


def off_words(share: float) -> str:
    """`+0.03 %`: positive where too much was predicted."""
    return f"{100 * share:+.2f} %"
