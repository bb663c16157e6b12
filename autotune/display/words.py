"""A point, a speed, a length of time and a trial's end in words; the same words everywhere."""

from __future__ import annotations

from autotune.sizes import format_size
from trials.wire import Outcome, Phase, Point, TrialResult

PHASE_WORDS = {
    Phase.LOAD: "loading the model",
    Phase.START: "starting the engine",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.FIRST_STEP: "first step",
    Phase.LATER_STEP: "later steps",
    Phase.EVALUATION: "evaluation",
    Phase.SAVING: "saving a checkpoint",
}


def point_words(point: Point) -> str:
    """The configuration in one line; neutral values are left out, but for the four that always matter."""
    words = [
        f"mb {point.micro_batch_size} x ga {point.gradient_accumulation_steps}",
        f"zero {point.zero_stage}",
        f"ckpt {point.checkpoint_fraction:g}",
        f"lora {point.lora_rank}" if point.lora_rank else "full",
    ]
    if point.offload != "none":
        words.append(f"offload {point.offload}")
    if point.quantization != "none":
        words.append(point.quantization)
    if point.optimizer != "adamw":
        words.append(point.optimizer)
    if point.precision != "bf16":
        words.append(point.precision)
    if point.attention != "sdpa":
        words.append(point.attention)
    if point.liger_kernel:
        words.append("liger")
    if point.zero_bucket_elements is not None:
        words.append(f"bucket {point.zero_bucket_elements:g}")
    return ", ".join(words)


def speed_words(tokens_per_second: float | None) -> str:
    """`5,432 tok/s`; a dash where it is not known."""
    if tokens_per_second is None:
        return "-"
    digits = 0 if tokens_per_second >= 100 else 1
    return f"{tokens_per_second:,.{digits}f} tok/s"


def size_words(size_bytes: int | None) -> str:
    """`812 MiB`; a dash where it is not known."""
    return "-" if size_bytes is None else format_size(size_bytes)


def duration_words(seconds: float) -> str:
    """`45s`, `12m 05s`, `7h 59m`, `2d 03h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600:02d}h"


def chance_words(share: float) -> str:
    """`21 %`; what is neither impossible nor certain is never told as 0 or 100 %."""
    if 0.0 < share < 0.01:
        return "less than 1 %"
    return "more than 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def phase_words(phase: str) -> str:
    """A phase in words; one that this version does not know stays as it is."""
    return PHASE_WORDS[Phase(phase)] if phase in set(Phase) else phase


def memory_of(result: TrialResult) -> int | None:
    """The figure that is compared with the budget: what it needs, else what it held. Bytes."""
    return result.required_device_bytes if result.required_device_bytes is not None else result.device_bytes


def end_words(result: TrialResult) -> str:
    """Why a trial ended as it did: empty for a good one, else its phase and what it was short of."""
    if result.outcome in (Outcome.OK, Outcome.STOPPED):
        return ""
    where = f"in {phase_words(result.phase)}"
    if result.oom_short_bytes is not None:
        return f"{where}, {format_size(result.oom_short_bytes)} short"
    if result.outcome in (Outcome.OOM, Outcome.HOST_OOM, Outcome.TIMEOUT):
        return where
    first = result.message.strip().splitlines()[0] if result.message.strip() else ""
    return f"{where}: {first}" if first else where


def ending_words(result: TrialResult, budget_bytes: int) -> str:
    """How a trial ended, as a sentence to the user; empty for a good one."""
    phase = phase_words(result.phase)
    said = " ".join(result.message.split())
    match result.outcome:
        case Outcome.OK:
            return ""
        case Outcome.STOPPED:
            return "stopped early: it was clearly slower than what is known already"
        case Outcome.OOM:
            short = result.oom_short_bytes
            lack = f", at least {format_size(short)} short" if short else ""
            return (
                f"needs more than the budget of {format_size(budget_bytes)}: out of memory in {phase}{lack}"
            )
        case Outcome.HOST_OOM:
            return f"out of host memory in {phase}: --host-budget limits it, offload takes it"
        case Outcome.TIMEOUT:
            return f"ran out of its time in {phase}: --trial-timeout gives more"
        case Outcome.NAN:
            return f"the loss was no number in {phase}"
        case Outcome.INVALID:
            return f"cannot be run: {said}"
        case Outcome.CRASH:
            return f"crashed in {phase}: {said or 'no reason given'}"
