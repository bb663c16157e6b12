"""Replays a trace through the allocator: what it reserves, and the smallest cap under which it works."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from autotune.prediction.allocator import LARGE_SEGMENT_BYTES, CachingAllocator, OutOfMemory
from autotune.prediction.events import Events


@dataclass(frozen=True)
class Replay:
    """What the allocator did. Sizes in bytes.

    Attributes:
        peak_allocated_bytes: largest over all phases.
        peak_reserved_bytes: largest over all phases.
        phase_peaks: largest allocation by phase name.
        step_peaks: largest allocation in each optimizer step.
        step_peak_reserved_bytes: largest from the first optimizer step on.
        retries: how often everything free was released to go on.
    """

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    phase_peaks: dict[str, int]
    step_peaks: tuple[int, ...]
    step_peak_reserved_bytes: int
    retries: int


def replay(
    events: Events,
    *,
    expandable_segments: bool = True,
    cap_bytes: int | None = None,
    empty_cache_at: Collection[str] = (),
) -> Replay:
    """Run the events through the allocator.

    Args:
        events: the trace.
        expandable_segments: as `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
        cap_bytes: what may be reserved; None for no cap.
        empty_cache_at: markers at which `torch.cuda.empty_cache()` is called, such as "step 0".

    Raises:
        OutOfMemory: the cap is too small.
    """
    allocator = CachingAllocator(expandable_segments=expandable_segments, cap_bytes=cap_bytes)
    blocks = {}
    allocate, free = allocator.allocate, allocator.free
    phase_peaks: dict[str, int] = {}
    step_peaks: list[int] = []
    phase, step, overall = "", -1, 0
    stepping = False
    setup_reserved = 0
    markers = events.markers
    position = -1
    try:
        for ident, size, stream in zip(
            events.ids.tolist(), events.sizes.tolist(), events.streams.tolist(), strict=True
        ):
            position += 1
            if ident > 0:
                if stream >= 0:
                    blocks[ident] = allocate(size, stream)
            elif ident < 0:
                block = blocks.pop(-ident, None)
                if block is not None:
                    free(block)
            else:
                text = markers[size]
                if text in empty_cache_at:
                    allocator.release_cached()
                word, _, rest = text.partition(" ")
                if word == "empty_cache":
                    allocator.release_cached()
                    continue
                peak = allocator.peak_allocated_bytes
                overall = max(overall, peak)
                if phase:
                    phase_peaks[phase] = max(phase_peaks.get(phase, 0), peak)
                    if stepping:
                        step_peaks[step] = max(step_peaks[step], peak)
                allocator.peak_allocated_bytes = allocator.allocated_bytes
                if word == "phase":
                    phase = rest
                    stepping = step >= 0 and rest not in ("evaluation", "saving")
                elif word == "step":
                    if step < 0:
                        setup_reserved = allocator.peak_reserved_bytes
                        allocator.peak_reserved_bytes = allocator.reserved_bytes
                    step += 1
                    step_peaks.append(0)
                    stepping = False
                    phase = ""
    except OutOfMemory as error:
        error.event = position
        raise
    peak = allocator.peak_allocated_bytes
    if phase:
        phase_peaks[phase] = max(phase_peaks.get(phase, 0), peak)
        if stepping:
            step_peaks[step] = max(step_peaks[step], peak)
    return Replay(
        peak_allocated_bytes=max(overall, peak),
        peak_reserved_bytes=max(setup_reserved, allocator.peak_reserved_bytes),
        phase_peaks=phase_peaks,
        step_peaks=tuple(step_peaks),
        step_peak_reserved_bytes=allocator.peak_reserved_bytes,
        retries=allocator.retries,
    )


def fits(events: Events, cap_bytes: int) -> bool:
    """Whether the trace runs under a cap, with expandable segments."""
    try:
        replay(events, cap_bytes=cap_bytes)
    except OutOfMemory:
        return False
    return True


def smallest_cap(events: Events, free_running_bytes: int, *, tolerance: float = 0.001) -> int:
    """The smallest cap on the allocator under which the trace runs with expandable segments, in bytes.

    Args:
        events: the trace.
        free_running_bytes: reserved without a cap; it works by definition.
        tolerance: how close to the smallest the answer is, as a share of it; it always works.
    """
    page = LARGE_SEGMENT_BYTES
    low = int(events.allocated.max(initial=0))
    high = free_running_bytes
    # Nearly all configurations need little more than they allocate: ask there first.
    for share in (1.002, 1.008, 1.02):
        guess = -(-int(low * share) // page) * page
        if guess >= high:
            break
        if fits(events, guess):
            high = guess
            break
        low = guess
    while high - low > max(page, int(high * tolerance)):
        middle = (low + high) // 2
        if fits(events, middle):
            high = middle
        else:
            low = middle
    return high
