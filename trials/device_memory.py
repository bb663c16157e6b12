"""Measures and limits device memory, on the GPU and, for runs without one, on the CPU.

On the GPU the allocator is capped at the budget less the share outside it, with expandable segments on. On
the CPU the device's memory is what the process allocates beyond its imports: private writable mappings, as
RLIMIT_DATA counts
them, so that the operating system itself enforces the budget and an out-of-memory there is a real one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import threading
from abc import ABC, abstractmethod
from pathlib import Path

import torch

from trials.nvml import Nvml, open_nvml
from trials.surroundings import Surroundings
from trials.wire import GpuState

# Expandable segments map pages of this size for large allocations: what is needed is a whole number of them.
EXPANDABLE_PAGE_BYTES = 20 << 20
CPU_SAMPLE_SECONDS = 0.004
# What lasts less than a sample is missed, and the heap's layout differs from run to run: peaks of the same
# configuration were seen to differ by 9 %.
CPU_UNSEEN_SHARE = 1 / 8
# In use before the trial began: less than this is no other training.
FOREIGN_BYTES = 64 << 20


class DeviceMemory(ABC):
    """One device's memory during one trial."""

    @abstractmethod
    def limit(self, budget_bytes: int | None, outside_bytes: int) -> None:
        """Let the process hold no more than the budget, of which `outside_bytes` are not the allocator's."""

    @abstractmethod
    def begin_point(self) -> None:
        """Forget what was seen so far: another point is measured, on an engine that is there already."""

    @abstractmethod
    def give_back(self) -> None:
        """Return to the device what is cached for nobody."""

    @abstractmethod
    def allocated_bytes(self) -> int:
        """What is allocated now."""

    @abstractmethod
    def restart_peak(self) -> None:
        """Begin a new peak (a new phase)."""

    @abstractmethod
    def peak_allocated_bytes(self) -> int:
        """The largest allocation since `restart_peak`."""

    @abstractmethod
    def peak_reserved_bytes(self) -> int:
        """The largest reservation since the point's start."""

    @abstractmethod
    def device_bytes(self) -> int:
        """The largest amount the process was seen to hold on the device."""

    @abstractmethod
    def outside_bytes(self) -> int:
        """What the process holds on the device outside the allocator, now."""

    @abstractmethod
    def required_bytes(self, peak_allocated_bytes: int) -> int:
        """The smallest budget under which a run with this peak is expected to work."""

    @abstractmethod
    def state(self) -> GpuState | None:
        """The device's own state; None on the CPU."""

    def surroundings(self) -> Surroundings | None:
        """What else goes on on the device now; None where nobody says."""
        return None

    def free_bytes(self) -> int | None:
        """What is left under the limit; None without one, or where the refusal itself says."""
        return None

    def synchronize(self) -> None:  # noqa: B027 - the CPU has nothing to wait for
        """Wait for the device."""

    def close(self) -> None:  # noqa: B027 - only the CPU is watched
        """Stop watching: the peaks stay as they are."""


class CudaMemory(DeviceMemory):
    """PyTorch's caching allocator and NVML.

    Create it before CUDA is initialised: it records who is there already.
    """

    def __init__(self, index: int = 0) -> None:
        self._nvml: Nvml | None = open_nvml(index)
        # Before CUDA is up here, what is in use beyond the driver's own is somebody else's.
        self._foreign_bytes = self._nvml.used_bytes - self._nvml.driver_bytes if self._nvml else 0
        self._index = index
        torch.cuda.init()
        self._device_bytes = 0

    def limit(self, budget_bytes: int | None, outside_bytes: int) -> None:
        total = torch.cuda.get_device_properties(self._index).total_memory
        cap = total if budget_bytes is None else max(0, budget_bytes - outside_bytes)
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total), self._index)

    def begin_point(self) -> None:
        self._device_bytes = 0
        torch.cuda.reset_peak_memory_stats(self._index)

    def give_back(self) -> None:
        torch.cuda.synchronize(self._index)
        # cuBLAS' workspaces are allocated when they are first needed, and never freed.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch._C._host_emptyCache()

    def allocated_bytes(self) -> int:
        return int(torch.cuda.memory_allocated(self._index))

    def restart_peak(self) -> None:
        self._sample()
        torch.cuda.reset_peak_memory_stats(self._index)

    def peak_allocated_bytes(self) -> int:
        self._sample()
        return int(torch.cuda.max_memory_allocated(self._index))

    def peak_reserved_bytes(self) -> int:
        return int(torch.cuda.max_memory_reserved(self._index))

    def device_bytes(self) -> int:
        self._sample()
        return self._device_bytes

    def outside_bytes(self) -> int:
        return max(0, self._held() - int(torch.cuda.memory_reserved(self._index)))

    def required_bytes(self, peak_allocated_bytes: int) -> int:
        pages = -(-peak_allocated_bytes // EXPANDABLE_PAGE_BYTES)
        return pages * EXPANDABLE_PAGE_BYTES + self.outside_bytes()

    def state(self) -> GpuState | None:
        return self._nvml.state(self._others()) if self._nvml else None

    def surroundings(self) -> Surroundings | None:
        nvml = self._nvml
        if nvml is None:
            return None
        return Surroundings(nvml.sm_clock_mhz(), nvml.slowed_by(), nvml.process_count(), self.outside_bytes())

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._index)

    def _held(self) -> int:
        if self._nvml is None:
            free, total = torch.cuda.mem_get_info(self._index)
            return int(total - free)
        # The driver's own share counts: on a card of the budget's size it is taken from the same memory.
        return self._nvml.used_bytes - self._foreign_bytes

    def _others(self) -> bool:
        assert self._nvml is not None
        return self._foreign_bytes > FOREIGN_BYTES or self._nvml.process_count() > 1

    def _sample(self) -> None:
        if torch.cuda.is_initialized():
            reserved_now = int(torch.cuda.memory_reserved(self._index))
            # NVML is asked now; the reservation may have been larger a moment ago.
            peak = self._held() - reserved_now + int(torch.cuda.max_memory_reserved(self._index))
            self._device_bytes = max(self._device_bytes, peak)


class CpuMemory(DeviceMemory):
    """Private writable mappings of this process beyond what it held when this object was made.

    A thread looks every few milliseconds, so a peak shorter than that may be missed. What libraries have come
    to keep for the shapes of earlier points counts neither as the next one's memory nor against its limit.
    """

    def __init__(self) -> None:
        self._before = data_bytes()
        self._allowed_bytes: int | None = None
        self._first_kept: int | None = None
        self._kept_since = 0
        self._peak = 0
        self._overall = 0
        # Its own stack counts against the limit: start it before there is one.
        self._start_watching()

    def limit(self, budget_bytes: int | None, outside_bytes: int) -> None:
        self._allowed_bytes = None if budget_bytes is None else budget_bytes - outside_bytes
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        allowed = self._allowed_bytes
        soft = resource.RLIM_INFINITY if allowed is None else self._before + self._kept_since + allowed
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def begin_point(self) -> None:
        self._peak = self._overall = self._now()
        if self._stop.is_set():
            self._start_watching()

    def give_back(self) -> None:
        ctypes.CDLL(None).malloc_trim(0)
        kept = self.allocated_bytes()
        # A first point keeps what any point would.
        self._first_kept = kept if self._first_kept is None else self._first_kept
        self._kept_since = max(0, kept - self._first_kept)

    def allocated_bytes(self) -> int:
        return max(0, data_bytes() - self._before)

    def restart_peak(self) -> None:
        self._peak = self._now()

    def peak_allocated_bytes(self) -> int:
        self._look()
        return self._peak

    def peak_reserved_bytes(self) -> int:
        self._look()
        return self._overall

    def device_bytes(self) -> int:
        self._look()
        return self._overall

    def outside_bytes(self) -> int:
        return 0

    def required_bytes(self, peak_allocated_bytes: int) -> int:
        return int((1 + CPU_UNSEEN_SHARE) * max(peak_allocated_bytes, self.device_bytes()))

    def state(self) -> GpuState | None:
        return None

    def free_bytes(self) -> int | None:
        return None if self._allowed_bytes is None else max(0, self._allowed_bytes - self._now())

    def close(self) -> None:
        self._look()
        self._stop.set()
        self._thread.join(timeout=1.0)

    def _now(self) -> int:
        return max(0, self.allocated_bytes() - self._kept_since)

    def _look(self) -> None:
        if self._stop.is_set():
            return
        now = self._now()
        self._peak = max(self._peak, now)
        self._overall = max(self._overall, now)

    def _start_watching(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cpu-memory", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(CPU_SAMPLE_SECONDS):
            self._look()


def data_bytes(pid: int | str = "self") -> int:
    """A process' private writable mappings, as RLIMIT_DATA counts them."""
    return _status_bytes(pid, "VmData")


def resident_bytes(pid: int | str = "self") -> int:
    """A process' resident memory."""
    return _status_bytes(pid, "VmRSS")


def peak_resident_bytes(pid: int | str = "self") -> int:
    """A process' largest resident memory so far."""
    return _status_bytes(pid, "VmHWM")


def restart_peak_resident() -> None:
    """Begin a new `peak_resident_bytes` of this process, where the kernel lets it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def cpu_seconds(pid: int | str = "self") -> float:
    """Processor time a process and all its threads have used."""
    # The command's name, in parentheses, may hold spaces: the fields are counted after it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status_bytes(pid: int | str, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0
