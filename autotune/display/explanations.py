"""Why a configuration fits or not, in sentences, and what would make it fit."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.display.columns import table
from autotune.display.room import stdout_columns
from autotune.display.words import phase_words, point_words
from autotune.planning.explanation import leaves_no_room
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.planning.explanation import Explanation, Remedy
    from trials.wire import Point

NAMED_PIECES = 4
SMALL_SHARE = 0.03

# What each piece grows with: the words of trials/tracing/labels.py.
GROWS_WITH = {
    "weights": "2 bytes a parameter in 16 bits",
    "quantized base": "half a byte to one byte a parameter of the base",
    "gradients": "grow with the trained parameters",
    "optimizer state": "grows with the trained parameters: 8 bytes each, 2 in 8 bits",
    "fp32 master weights": "4 bytes a trained parameter",
    "logits and loss": "grow with micro batch x tokens x vocabulary, several times in fp32",
    "activations: attention": "grow with the micro batch and the layers that are not recomputed",
    "activations: MLP": "grow with the micro batch and the layers that are not recomputed",
    "activations: norms": "grow with the micro batch and the layers that are not recomputed",
    "activations: other": "grow with the micro batch and the layers",
    "activations: in backward": "grow with the micro batch: one layer's at a time",
}


def explanation_text(explanation: Explanation) -> str:
    """The verdict, the reason, and the remedies."""
    parts = [_paragraph(verdict(explanation)), _paragraph(reason(explanation)), _pieces(explanation)]
    if not explanation.fits:
        parts.append(_remedies(explanation))
    parts += [_paragraph(f"Note: {note}.") for note in explanation.prediction.notes]
    return "\n\n".join(filter(None, parts))


def verdict(explanation: Explanation) -> str:
    """Whether it fits, by how much."""
    question, prediction = explanation.question, explanation.prediction
    budget = question.budgets.device_bytes
    what = f"{question.name} with {point_words(question.point)}, {question.seq_len:,} tokens a sequence,"
    needs = f"{what} needs {format_size(prediction.required_device_bytes)} of device memory"
    if explanation.limit == "host":
        host = question.budgets.host_bytes or 0
        return (
            f"{needs} and {format_size(prediction.host_peak_bytes)} of host memory, of which "
            f"{format_size(host)} are allowed: it does not fit."
        )
    assert budget is not None, "without a budget nothing is asked"
    spare = budget - prediction.required_device_bytes
    if spare >= 0:
        return f"{needs}: it fits in {format_size(budget)}, with {format_size(spare)} to spare."
    return f"{needs}: it does not fit in {format_size(budget)}, it is {format_size(-spare)} short."


def reason(explanation: Explanation) -> str:
    """Where the peak is, and what lies beside PyTorch's allocator."""
    prediction = explanation.prediction
    setup = prediction.setup_peak_allocated_bytes
    where = f"in {phase_words(prediction.phase)}"
    loading = ""
    if setup > prediction.peak_allocated_bytes:
        loading = f" Setting up takes more than any training step: {format_size(setup)}."
    return (
        f"A training step holds most, {format_size(prediction.peak_allocated_bytes)}, {where}; "
        f"{format_size(prediction.outside_allocator_bytes)} more lie outside PyTorch's allocator "
        f"(the CUDA context, libraries, communicators).{loading}"
    )


def change_words(changes: Mapping[str, Any], point: Point) -> str:
    """`micro_batch_size 4 (gradient_accumulation_steps 8)`."""
    follows = changes.get("gradient_accumulation_steps")
    words = [f"{name} {_value(value)}" for name, value in changes.items() if name != _FOLLOWS]
    if follows is not None:
        words[0] += f" ({_FOLLOWS} {follows})"
    return ", ".join(words)


_FOLLOWS = "gradient_accumulation_steps"


def _pieces(explanation: Explanation) -> str:
    breakdown, total = explanation.prediction.breakdown, explanation.prediction.peak_allocated_bytes
    largest = sorted(breakdown.items(), key=lambda item: -item[1])[:NAMED_PIECES]
    rows = [
        [f"  {name}", format_size(size), f"{size / total:.0%}", GROWS_WITH.get(name, "")]
        for name, size in largest
        if size >= SMALL_SHARE * total
    ]
    return "most of it\n" + "\n".join(table(["", "", "", ""], rows, right=(1, 2)).splitlines()[1:])


def _remedies(explanation: Explanation) -> str:
    if explanation.remedies:
        return "what would make it fit, one change each\n" + _table(explanation.remedies)
    if explanation.together is not None:
        return "no single change is enough; together these are\n" + _table((explanation.together,))
    if explanation.least is not None:
        return "nothing was found that makes it fit; what comes nearest\n" + _table((explanation.least,))
    if leaves_no_room(explanation.question, explanation.prediction):
        outside = format_size(explanation.prediction.outside_allocator_bytes)
        return f"nothing can fit: {outside} lie outside PyTorch's allocator whatever is trained."
    return "nothing makes it smaller: a larger budget, shorter sequences or a smaller model would."


def _table(remedies: tuple[Remedy, ...]) -> str:
    rows = [
        [
            f"  {change_words(remedy.changes, remedy.point)}",
            format_size(remedy.prediction.required_device_bytes),
            f"~{remedy.relative_speed:.0%}",
            remedy.quality,
        ]
        for remedy in remedies
    ]
    return table(["  change", "needs", "speed", "what is learned"], rows, right=(1, 2))


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _paragraph(text: str) -> str:
    width = stdout_columns()
    return text if width is None else textwrap.fill(text, width, break_on_hyphens=False)
