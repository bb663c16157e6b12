"""Predictions as text: one configuration piece by piece, and a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.display.columns import fields, table
from autotune.display.words import phase_words, point_words, size_words, speed_words
from autotune.sizes import format_size

if TYPE_CHECKING:
    from autotune.planning.outlook import Budgets, Outlook
    from autotune.planning.plan import Plan
    from autotune.prediction.prediction import Prediction
    from trials.wire import Point

BAR_WIDTH = 30
SHOWN_POINTS = 10
SHOWN_REJECTIONS = 8


def estimate_text(title: str, point: Point, prediction: Prediction, verdict: str) -> str:
    """One configuration: the totals, and what the peak is made of."""
    totals = fields(
        [
            ("configuration", point_words(point)),
            ("needs", f"{format_size(prediction.required_device_bytes)} of device memory {verdict}".rstrip()),
            ("peak allocated", f"{format_size(prediction.peak_allocated_bytes)} in {_phase(prediction)}"),
            ("while loading", format_size(prediction.setup_peak_allocated_bytes)),
            ("outside PyTorch", format_size(prediction.outside_allocator_bytes)),
            ("NVML will show", f"{format_size(prediction.device_bytes)} when it may keep what it likes"),
            ("host memory", format_size(prediction.host_peak_bytes)),
            (
                "parameters",
                f"{prediction.total_parameters:,}, of which {prediction.trainable_parameters:,} are trained",
            ),
        ]
    )
    notes = "".join(f"\nnote: {note}" for note in prediction.notes)
    pieces = _pieces(prediction.breakdown, prediction.peak_allocated_bytes)
    return f"{title}\n\n{totals}\n\nat the peak\n{pieces}{notes}"


def plan_text(plan: Plan, budgets: Budgets) -> str:
    """What fits, best first; why the rest does not; and what would help where nothing fits."""
    parts = []
    if plan.fitting:
        parts.append(_fitting(plan.fitting))
    if plan.rejected:
        parts.append(_rejected(plan))
    for reason, count in plan.unpredictable.items():
        parts.append(f"{count:,} points could not be predicted: {reason}")
    if not plan.fitting and plan.other_methods:
        lines = [
            f"  --method {method}: {point_words(best.point)} needs "
            f"{format_size(best.prediction.required_device_bytes)}"
            for method, best in plan.other_methods.items()
        ]
        parts.append("what would fit\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _fitting(outlooks: Sequence[Outlook]) -> str:
    rows = [
        [
            point_words(outlook.point),
            size_words(outlook.prediction.required_device_bytes),
            size_words(outlook.prediction.host_peak_bytes),
            "~" + speed_words(outlook.tokens_per_second),
        ]
        for outlook in outlooks[:SHOWN_POINTS]
    ]
    more = len(outlooks) - len(rows)
    text = table(["configuration", "needs", "host", "rough speed"], rows, right=(1, 2, 3))
    return f"{len(outlooks):,} points fit\n{text}" + (f"\n... and {more:,} more" if more > 0 else "")


def _rejected(plan: Plan) -> str:
    count = sum(one.count for one in plan.rejected)
    lines = [f"{count:,} points do not fit"]
    for one in plan.rejected[:SHOWN_REJECTIONS]:
        lines.append(f"  {_group_words(one.group)} ({one.count:,} points)")
        lines.append(f"    nearest: {point_words(one.nearest.point)}")
        lines.append(f"    {one.why}" + (f"; {one.remedy}" if one.remedy else ""))
    if len(plan.rejected) > SHOWN_REJECTIONS:
        lines.append(f"  ... and {len(plan.rejected) - SHOWN_REJECTIONS} more groups")
    return "\n".join(lines)


def _group_words(group: Mapping[str, object]) -> str:
    words = [str(group["method"]), f"zero {group['zero_stage']}"]
    if group["offload"] != "none":
        words.append(f"offload {group['offload']}")
    if group["quantization"] not in ("none", "nf4") or group["method"] != "qlora":
        words += [] if group["quantization"] == "none" else [str(group["quantization"])]
    if group["optimizer"] != "adamw":
        words.append(str(group["optimizer"]))
    return ", ".join(words)


def _phase(prediction: Prediction) -> str:
    return phase_words(prediction.phase)


def _pieces(breakdown: Mapping[str, int], total_bytes: int) -> str:
    rows = []
    for name, size in sorted(breakdown.items(), key=lambda item: -item[1]):
        share = size / total_bytes if total_bytes else 0.0
        rows.append([f"  {name}", format_size(size), f"{share:.1%}", "#" * round(share * BAR_WIDTH)])
    return "\n".join(table(["  piece", "size", "share", ""], rows, right=(1, 2)).splitlines()[1:])
