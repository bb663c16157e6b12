"""Tells what an exception in a trial means: out of device or host memory, NaN, invalid or a crash."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from trials.wire import Outcome

_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_CUDA_REQUEST = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)")
_CUDA_ALLOWED = re.compile(r"([\d.]+) (bytes|KiB|MiB|GiB) allowed")
_CUDA_ALLOCATED = re.compile(r"([\d.]+) (bytes|KiB|MiB|GiB) is allocated by PyTorch")
_CUDA_UNUSED = re.compile(r"([\d.]+) (bytes|KiB|MiB|GiB) is reserved by PyTorch but unallocated")
_CPU_REQUEST = re.compile(r"you tried to allocate (\d+) bytes")

# What an exhausted RLIMIT_DATA looks like from inside torch, DeepSpeed, numpy and the C++ runtime.
_CPU_OOM_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "bad_alloc",
    "bad alloc",
    "std::bad_array_new_length",
    "unable to allocate",
    "resource temporarily unavailable",  # EAGAIN: no room for a thread's stack
    "can't start new thread",
    "failed to create thread",
    "libgomp: thread creation failed",
    "errno 12",
    "errno 11",
    "out of memory",
    "could not create a primitive",  # oneDNN: no room for its scratchpad
    "could not create a memory",
    "mmap failed",
)
_CUDA_OOM_SIGNS = (
    "cuda out of memory",
    "cublas_status_alloc_failed",
    "cuda error: out of memory",
    "cudnn_status_alloc_failed",
    "cuda failure 2 'out of memory'",  # NCCL
    "cuda failure 'out of memory'",
    "triton error [cuda]: out of memory",
    "cudaerrormemoryallocation",
)
_ALLOCATOR_SIGNS = ("OutOfMemoryError", "DefaultCPUAllocator")
_HOST_OOM_SIGNS = (
    "cudahostalloc",
    "cudahostregister",
    "defaultcpuallocator",
    "cannot allocate memory",
)


@dataclass(frozen=True)
class Failure:
    """An outcome with the user's words for it."""

    outcome: Outcome
    message: str
    requested_bytes: int | None = None
    short_bytes: int | None = None

    @property
    def allocator_refused(self) -> bool:
        """Whether torch's allocator refused a request: nothing is broken then but what was under way."""
        return self.outcome is Outcome.OOM and any(sign in self.message for sign in _ALLOCATOR_SIGNS)


class NotANumber(Exception):
    """A loss that is not finite."""


def classify(error: BaseException, *, on_cpu: bool, limited: bool) -> Failure:
    """The failure an exception stands for.

    Args:
        error: what was raised in the trial; its causes are looked at too.
        on_cpu: whether the device is the CPU, where host memory is the device's memory.
        limited: whether the CPU's memory is limited; without a limit a refusal there is the machine's.
    """
    from trials.model_build import InvalidPoint

    for one in _chain(error):
        if isinstance(one, InvalidPoint):
            return Failure(Outcome.INVALID, str(one))
        if isinstance(one, NotANumber):
            return Failure(Outcome.NAN, str(one))
        text = f"{type(one).__name__}: {one}"
        lower = text.lower()
        if "cuda error: out of memory" in lower and _was_pinning(one):
            return Failure(Outcome.HOST_OOM, _one_line(text))
        if type(one).__name__ == "OutOfMemoryError" or any(sign in lower for sign in _CUDA_OOM_SIGNS):
            return Failure(Outcome.OOM, _one_line(text), _requested(text), _short(text))
        if isinstance(one, MemoryError) or any(sign in lower for sign in _CPU_OOM_SIGNS):
            outcome = Outcome.OOM if on_cpu and limited else Outcome.HOST_OOM
            return Failure(outcome, _one_line(text), _requested(text))
        if not on_cpu and isinstance(one, RuntimeError) and any(sign in lower for sign in _HOST_OOM_SIGNS):
            return Failure(Outcome.HOST_OOM, _one_line(text), _requested(text))
    return Failure(Outcome.CRASH, _one_line(f"{type(error).__name__}: {error}"))


def forget_frames(error: BaseException) -> None:
    """Let go of the frames an exception and its causes hold, and with them of the tensors in them."""
    for one in _chain(error):
        one.__traceback__ = None


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def _was_pinning(error: BaseException) -> bool:
    """Whether host memory was being pinned: CUDA refuses that in the same words as device memory."""
    frames = traceback.extract_tb(error.__traceback__)
    return any("pin_memory" in frame.name or "pin_memory" in (frame.line or "") for frame in frames[-4:])


def _requested(text: str) -> int | None:
    if match := _CUDA_REQUEST.search(text):
        return int(float(match[1]) * _UNITS[match[2]])
    if match := _CPU_REQUEST.search(text):
        return int(match[1])
    return None


def _short(text: str) -> int | None:
    """How much larger the allocator's cap must have been; None where CUDA does not say (a full card).

    What is reserved but unallocated counts as taken: it was offered to the request first and did not serve,
    and whole free pages were given back before the refusal.
    """
    asked, allowed, allocated, unused = (
        pattern.search(text) for pattern in (_CUDA_REQUEST, _CUDA_ALLOWED, _CUDA_ALLOCATED, _CUDA_UNUSED)
    )
    if asked is None or allowed is None or allocated is None:
        return None
    wanted, limit, held = (_size(match) for match in (asked, allowed, allocated))
    return max(0, wanted + held + (_size(unused) if unused else 0) - limit)


def _size(match: re.Match[str]) -> int:
    return int(float(match[1]) * _UNITS[match[2]])


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 400 else line[:397] + "..."
