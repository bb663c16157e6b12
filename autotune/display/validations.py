"""The table of `autotune doctor --validate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.display.columns import table
from autotune.display.comparisons import off_words
from autotune.display.words import point_words
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.tuning.validation import Validated

# Beside the peak of the training steps, which decides, these are shown by how much they are off.
_OTHERS = {
    "setup_peak_allocated_bytes": "setup",
    "required_device_bytes": "needs",
    "device_bytes": "device",
    "host_peak_bytes": "host",
}


def validation_text(rows: Sequence[Validated], most_off: float) -> str:
    """A line per configuration: the peak, predicted and measured, and how far off it and the others are."""
    lines = []
    for row in rows:
        one = row.configuration
        figures = {figure.figure: figure for figure in row.figures}
        peak = figures.get("peak_allocated_bytes")
        cells = ["ok" if row.holds else "OFF", f"{one.name}, {point_words(one.point)}"]
        if peak is None:
            lines.append([*cells, "", "", "", *("" for _ in _OTHERS)])
            continue
        cells += [format_size(peak.predicted_bytes), format_size(peak.measured_bytes), off_words(peak.off)]
        cells += [off_words(figures[name].off) if name in figures else "-" for name in _OTHERS]
        lines.append(cells)
    header = ["", "configuration", "predicted", "measured", "peak", *_OTHERS.values()]
    text = table(header, lines, right=range(2, len(header)))
    problems = [f"{point_words(row.configuration.point)}: {row.problem}" for row in rows if row.problem]
    bad = sum(not row.holds for row in rows)
    verdict = (
        f"{bad} of {len(rows)} configurations were not predicted to within {most_off:.0%}"
        if bad
        else f"all {len(rows)} peaks were predicted to within {most_off:.0%}"
    )
    return "\n".join([text, *(["", *problems] if problems else []), "", verdict])
