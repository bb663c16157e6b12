"""A picture of one training: allocated memory by piece over its events, from load to the last step (SVG)."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.events import Events
from autotune.sizes import format_size

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 40, 50
COLUMNS = 700
SHOWN_PIECES = 9
# Paul Tol's muted palette: told apart by most kinds of colour vision, on light and dark.
COLOURS = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933",
    "#ddcc77", "#cc6677", "#882255", "#aa4499", "#888888",
)  # fmt: skip


def timeline_svg(events: Events, title: Mapping[str, Any]) -> str:
    """The picture, one self-contained SVG document.

    Args:
        events: the trace of the configuration.
        title: the configuration, shown in the heading.
    """
    levels, names = _levels(events.training)
    columns = _columns(levels)
    top = max(int(columns.sum(axis=0).max()), 1)
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    shapes, base = [], np.zeros(columns.shape[1])
    for index, row in enumerate(columns):
        shapes.append(_area(base, base + row, top, plot_width, plot_height, COLOURS[index % len(COLOURS)]))
        base = base + row
    heading = ", ".join(f"{key} {value}" for key, value in title.items() if key in _HEADING)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'font-family="sans-serif" font-size="12" fill="currentColor" color="#444">',
            f"<title>{escape(heading)}</title>",
            f'<text x="{LEFT}" y="20" font-size="13">{escape(heading)}</text>',
            *_grid(top, plot_width, plot_height),
            f'<g transform="translate({LEFT},{TOP})">',
            *shapes,
            "</g>",
            *_phases(events.training, plot_width),
            *_legend(names, columns),
            "</svg>",
        ]
    )


_HEADING = ("model", "method", "seq_len", "micro_batch_size", "zero_stage", "offload", "checkpoint_fraction")


def _levels(events: Events) -> tuple[NDArray[np.int64], list[str]]:
    """Allocated bytes after each event, one row per piece: the largest pieces, and the rest as one."""
    births = events.births
    on_device = events.streams >= 0
    delta = np.where((events.ids > 0) & on_device, events.sizes, 0).astype(np.int64)
    kinds = events.kinds.astype(np.int64).copy()
    freed = np.flatnonzero(events.ids < 0)
    origin = births[-events.ids[freed]]
    delta[freed] = -delta[origin]
    kinds[freed] = kinds[origin]
    rows = np.stack([np.cumsum(np.where(kinds == kind, delta, 0)) for kind in range(len(events.categories))])
    order = np.argsort(-rows.max(axis=1))
    large = [int(kind) for kind in order[:SHOWN_PIECES] if rows[kind].max() > 0]
    rest = [int(kind) for kind in order[SHOWN_PIECES:]]
    names = [events.categories[kind] for kind in large]
    # What lasts is drawn at the bottom, what comes and goes above it.
    lasting = sorted(range(len(large)), key=lambda i: -int(np.median(rows[large[i]])))
    parts = [rows[large[i]] for i in lasting]
    names = [names[i] for i in lasting]
    if rest and rows[rest].max() > 0:
        parts.append(rows[rest].sum(axis=0))
        names.append("everything else")
    return np.stack(parts), names


def _columns(levels: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `COLUMNS` moments: of each stretch of events the one at which most is allocated."""
    total = levels.sum(axis=0)
    edges = np.linspace(0, len(total), min(COLUMNS, len(total)) + 1).astype(int)
    picked = [begin + int(total[begin:end].argmax()) for begin, end in pairwise(edges) if end > begin]
    return levels[:, picked]


def _area(low: NDArray[Any], high: NDArray[Any], top: int, width: int, height: int, colour: str) -> str:
    count = max(len(low) - 1, 1)
    up = [f"{x * width / count:.1f},{height - y / top * height:.1f}" for x, y in enumerate(high)]
    down = [f"{x * width / count:.1f},{height - y / top * height:.1f}" for x, y in enumerate(low)]
    return f'<polygon points="{" ".join([*up, *reversed(down)])}" fill="{colour}"/>'


def _grid(top: int, width: int, height: int) -> list[str]:
    lines = []
    for part in range(5):
        y = TOP + height - part / 4 * height
        lines.append(
            f'<line x1="{LEFT}" x2="{LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            'stroke-opacity="0.2"/>'
        )
        label = format_size(top * part // 4) if part else "0"
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    return lines


def _phases(events: Events, width: int) -> list[str]:
    """A mark where each phase and each optimizer step begins."""
    labels: list[tuple[float, str]] = []
    total, last = max(len(events.ids), 1), -1
    for name, step, begin, _ in events.spans:
        if step < 0:
            labels.append((begin / total, name))
        elif step != last:
            labels.append((begin / total, f"step {step + 1}"))
            last = step
    y = HEIGHT - BOTTOM + 16
    marks, occupied = [], -1.0
    for where, label in labels:
        x = LEFT + where * width
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="currentColor" '
            'stroke-opacity="0.35" stroke-dasharray="3 3"/>'
        )
        if x > occupied:
            marks.append(f'<text x="{x + 3:.1f}" y="{y}">{escape(label)}</text>')
            occupied = x + 7 * len(label) + 8
    return marks


def _legend(names: list[str], columns: NDArray[np.int64]) -> list[str]:
    x, lines = WIDTH - RIGHT + 14, []
    for index, name in reversed(list(enumerate(names))):
        y = TOP + 8 + (len(names) - 1 - index) * 20
        colour = COLOURS[index % len(COLOURS)]
        size = format_size(int(columns[index].max()))
        lines.append(f'<rect x="{x}" y="{y - 9}" width="11" height="11" fill="{colour}"/>')
        lines.append(f'<text x="{x + 17}" y="{y}">{escape(name)}, {size}</text>')
    return lines
