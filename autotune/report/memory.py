"""The memory of the winner piece by piece: what was predicted, what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.display.words import phase_words
from autotune.tuning.comparison import PHASES, Compared, compared
from trials.wire import TrialResult

if TYPE_CHECKING:
    from autotune.report.forecast import Forecast

OUTSIDE = "outside PyTorch's allocator"
PEAK = "peak of PyTorch's allocator"
OTHER_PHASE = "more, in another phase"
BETWEEN = "between the allocator's blocks"
# The last pieces are drawn as one.
MOST_PIECES = 7
REST = "the rest"

FIGURE_WORDS = {
    "required_device_bytes": "needed: the smallest budget",
    "device_bytes": "held where there is room",
    "peak_allocated_bytes": "allocated in training steps",
    "setup_peak_allocated_bytes": "allocated while loading and starting",
    "outside_allocator_bytes": "outside PyTorch's allocator",
    "host_peak_bytes": "host memory",
}


@dataclass(frozen=True)
class Piece:
    """A part of a bar.

    Attributes:
        name: what it is.
        size_bytes: how much.
        share: of the whole bar.
    """

    name: str
    size_bytes: int
    share: float


@dataclass(frozen=True)
class FigureRow:
    """A figure of the winner, predicted and measured; None where there is none.

    Attributes:
        name: in words.
        predicted_bytes: by the forecast.
        measured_bytes: by the run that is announced.
        off: the prediction's error as a share of what was measured.
    """

    name: str
    predicted_bytes: int | None
    measured_bytes: int | None
    off: float | None


def predicted_pieces(values: Mapping[str, Any]) -> tuple[Piece, ...]:
    """What `required_device_bytes` is made of, by a prediction; the largest first, the shares sum to 1.

    Args:
        values: a prediction's, with its `breakdown`.
    """
    sizes = dict(sorted(values["breakdown"].items(), key=lambda item: -item[1]))
    return _pieces(sizes | _around(values), values["required_device_bytes"])


def measured_pieces(result: TrialResult) -> tuple[Piece, ...]:
    """What was measured of `required_device_bytes`: the allocator's peak and what lies around it."""
    values = result.model_dump()
    if result.required_device_bytes is None or result.peak_allocated_bytes is None:
        return ()
    return _pieces({PEAK: result.peak_allocated_bytes} | _around(values), result.required_device_bytes)


def drawn(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces that a bar has room for: the smallest together as one."""
    if len(pieces) <= MOST_PIECES + 1:
        return pieces
    largest = sorted(pieces, key=lambda piece: -piece.size_bytes)[:MOST_PIECES]
    rest = [piece for piece in pieces if piece not in largest]
    together = Piece(REST, sum(p.size_bytes for p in rest), sum(p.share for p in rest))
    return (*largest, together)


def figure_rows(forecast: Forecast | None, result: TrialResult, device: str = "cuda") -> list[FigureRow]:
    """The totals, then the phases; predicted and measured side by side where both count the same thing.

    Args:
        forecast: None where there is none.
        result: of the run that is announced.
        device: where it ran; what a process holds says something on a GPU alone, where an allocator keeps it.
    """
    values = forecast.values if forecast else {}
    both: dict[str, Compared] = {}
    if forecast is not None and forecast.comparable:
        both = {one.figure: one for one in compared(values, result)}
    rows = []
    for name, words in FIGURE_WORDS.items():
        if device == "cpu" and name == "device_bytes":
            continue
        rows.append(_row(words, values.get(name), getattr(result, name), both.get(name)))
    phases, measured = values.get(PHASES) or {}, result.phase_peak_allocated_bytes
    for phase in dict.fromkeys((*measured, *phases)):
        words = f"allocated in: {phase_words(phase)}"
        rows.append(_row(words, phases.get(phase), measured.get(phase), both.get(phase)))
    return [row for row in rows if row.predicted_bytes or row.measured_bytes]


def _row(name: str, predicted: int | None, measured: int | None, both: Compared | None) -> FigureRow:
    return FigureRow(name, predicted, measured, both.off if both else None)


def _around(values: Mapping[str, Any]) -> dict[str, int]:
    """What is needed beside the peak of the training steps."""
    peak, outside = values["peak_allocated_bytes"], values.get("outside_allocator_bytes") or 0
    left = values["required_device_bytes"] - peak - outside
    setup = values.get("setup_peak_allocated_bytes") or 0
    return {OTHER_PHASE if setup > peak else BETWEEN: max(0, left), OUTSIDE: outside}


def _pieces(sizes: Mapping[str, int], total_bytes: int) -> tuple[Piece, ...]:
    total = max(total_bytes, sum(sizes.values()), 1)
    return tuple(Piece(name, size, size / total) for name, size in sizes.items() if size > 0)
