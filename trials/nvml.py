"""What the NVIDIA driver says of a GPU, through NVML; never raises where there is none."""

from __future__ import annotations

import contextlib
from typing import Any

from trials.wire import GpuState

# Bits of nvmlClocksThrottleReasons (nvml.h).
_SLOWDOWNS = {0x20 | 0x40: "too hot", 0x80: "power brake", 0x08: "hardware slowdown"}


class Nvml:
    """One GPU by index, as the process sees it (CUDA_VISIBLE_DEVICES may hold indices or UUIDs)."""

    def __init__(self, index: int = 0) -> None:
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handle = self._find(index)

    def _find(self, index: int) -> Any:
        import os

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        entry = visible.split(",")[index].strip() if visible else str(index)
        if entry.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(entry))
        return self._nvml.nvmlDeviceGetHandleByUUID(entry)

    @property
    def name(self) -> str:
        """The card's name."""
        return _text(self._nvml.nvmlDeviceGetName(self._handle))

    @property
    def driver(self) -> str:
        """The driver's version."""
        return _text(self._nvml.nvmlSystemGetDriverVersion())

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor."""
        major, minor = self._nvml.nvmlDeviceGetCudaComputeCapability(self._handle)
        return int(major), int(minor)

    @property
    def visible_gpus(self) -> int:
        """How many GPUs a process started now would see."""
        import os

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            return len([entry for entry in visible.split(",") if entry.strip()])
        return int(self._nvml.nvmlDeviceGetCount())

    @property
    def total_bytes(self) -> int:
        """The card's memory."""
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    @property
    def used_bytes(self) -> int:
        """Memory in use on the card by everybody, the driver's own share included."""
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    @property
    def driver_bytes(self) -> int:
        """The driver's own share of the memory in use, which is there on an idle card too."""
        info = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, version=self._nvml.nvmlMemory_v2)
        return int(info.reserved)

    def process_count(self) -> int:
        """How many processes compute on the card; 0 where NVML hides them (containers do)."""
        with contextlib.suppress(self._nvml.NVMLError):
            return len(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return 0

    def sm_clock_mhz(self) -> int | None:
        """The multiprocessors' clock now."""
        nvml = self._nvml
        clock: int | None = self._ask(lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        return clock

    def slowed_by(self) -> tuple[str, ...]:
        """Why the GPU slows itself down now, in words; a power limit is normal working, and no reason."""
        reasons = self._ask(lambda: self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)) or 0
        return tuple(words for bit, words in _SLOWDOWNS.items() if reasons & bit)

    def state(self, other_processes: bool | None) -> GpuState:
        """Clocks, temperature and power at this moment."""
        nvml = self._nvml
        return GpuState(
            name=self.name,
            driver=self.driver,
            sm_clock_mhz=self.sm_clock_mhz(),
            memory_clock_mhz=self._ask(
                lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM)
            ),
            temperature_celsius=self._ask(
                lambda: nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            power_watts=self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000),
            other_processes=other_processes,
        )

    def _ask(self, question: Any) -> Any:
        with contextlib.suppress(self._nvml.NVMLError):
            return question()
        return None


def open_nvml(index: int = 0) -> Nvml | None:
    """The GPU of an index, or None where there is no NVIDIA driver or no such card."""
    try:
        return Nvml(index)
    except Exception:
        # pynvml raises its own errors, OSError or IndexError here; each means: no GPU to ask.
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
