"""What else went on while steps were timed: clocks, heat, other processes, steps that changed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# Of the clock and of the steps' time: less changes from one step to the next without any reason.
CLOCK_FALL_SHARE = 0.10
STEP_CHANGE_SHARE = 0.03
# Steps that change by so much on their own were not measured in one state, whatever the reason.
DRIFT_SHARE = 0.05
# With fewer timed steps a half is one step, which says nothing.
HALVES_STEPS = 4
# Memory that appears on the device outside our allocator meanwhile: less may be a kernel that was loaded.
OTHERS_BYTES = 64 << 20
# Of all processors, used by other processes: with more, a step on the CPU waits for them.
OTHERS_CPU_SHARE = 0.10


@dataclass(frozen=True)
class Surroundings:
    """The GPU at one moment. None where NVML does not say.

    Attributes:
        sm_clock_mhz: of the multiprocessors.
        slowed_by: why the GPU slows itself down, in words; a power limit is its normal working and none.
        processes: how many compute on it; 0 where NVML hides them.
        outside_bytes: device memory in use beyond this process' allocator.
    """

    sm_clock_mhz: int | None
    slowed_by: tuple[str, ...]
    processes: int
    outside_bytes: int


def disturbance(seen: Sequence[Surroundings], step_seconds: Sequence[float]) -> str | None:
    """What disturbed a measurement, in the user's words; None where nothing did.

    Args:
        seen: before the first timed step, and after each.
        step_seconds: the timed steps.
    """
    words: list[str] = []
    reasons = dict.fromkeys(reason for one in seen for reason in one.slowed_by)
    if reasons:
        words.append(f"the GPU slowed itself down ({', '.join(reasons)})")
    if any(one.processes > 1 for one in seen):
        words.append("another process is on this GPU")
    elif seen:
        moved = seen[-1].outside_bytes - seen[0].outside_bytes
        if abs(moved) > OTHERS_BYTES:
            did = "took" if moved > 0 else "gave back"
            words.append(f"another process {did} {abs(moved) >> 20} MiB of this GPU")
    change = step_change(step_seconds)
    clocks = [one.sm_clock_mhz for one in seen if one.sm_clock_mhz is not None]
    if clocks and min(clocks) < (1 - CLOCK_FALL_SHARE) * max(clocks) and abs(change) > STEP_CHANGE_SHARE:
        words.append(f"its clock moved between {min(clocks)} and {max(clocks)} MHz")
    if abs(change) > DRIFT_SHARE:
        words.append(change_words(change))
    return "; ".join(words) or None


def step_change(step_seconds: Sequence[float]) -> float:
    """How much longer the second half of the steps took than the first; 0.0 where there are too few."""
    if len(step_seconds) < HALVES_STEPS:
        return 0.0
    half = len(step_seconds) // 2
    return median(step_seconds[-half:]) / median(step_seconds[:half]) - 1.0


def change_words(change: float) -> str:
    """`the steps became 7 % slower while they were timed`."""
    return f"the steps became {abs(change):.0%} {'slower' if change > 0 else 'faster'} while they were timed"


class OthersLoad:
    """The processors' time that other processes use, from the moment this object is made."""

    def __init__(self) -> None:
        self._busy, self._all = _processor_seconds()
        self._own = time.process_time()

    def share(self) -> float:
        """Of all processors' time since then."""
        busy, total = _processor_seconds()
        passed = total - self._all
        others = (busy - self._busy) - (time.process_time() - self._own)
        return max(0.0, others / passed) if passed > 0 else 0.0


def _processor_seconds() -> tuple[float, float]:
    """Used and passed, over all processors, since the machine started."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    # user nice system idle iowait irq softirq steal; what a guest uses is in user already.
    ticks = [int(word) for word in words[1:9]]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[3] - ticks[4]) / hertz, sum(ticks) / hertz
