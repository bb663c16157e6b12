"""What a machine does per second, measured by its probe or taken from the table of GPUs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Of published peaks, what large matrix products, streaming and copies reach on an H200 and on GeForce boards.
_MATMUL_SHARE = 0.7
_STREAM_SHARE = 0.85
_COPY_SHARE = 0.8
# Half of the rate is reached by square matrices of this size.
_HALF_SIZE = 700.0
_PCIE_LANE_BYTES_PER_SECOND = {3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}


@dataclass(frozen=True)
class Rates:
    """What a machine does at best, and in its launches usually. The defaults are an H200's and its host's.

    Attributes:
        matmul_flops: of 16-bit matrix products, as they grow large.
        fp32_matmul_flops: of fp32 ones (TF32 where there is such).
        matmul_half_size: the size of square matrices whose product runs at half of that rate.
        memory_bytes: device memory read or written, per second.
        host_bytes: pinned host memory to device, per second.
        launch_seconds: of the host, for one operation of a decoder layer; see `trials.probe`.
        cpu_adam_parameters: parameters that Adam on the host updates per second.
        link_bytes: between two GPUs, per second.
        nvme_bytes: of the NVMe folder, per second.
        device: cuda or cpu, which have coefficients of their own.
    """

    matmul_flops: float = _MATMUL_SHARE * 990e12
    fp32_matmul_flops: float = _MATMUL_SHARE * 495e12
    matmul_half_size: float = _HALF_SIZE
    memory_bytes: float = _STREAM_SHARE * 4.8e12
    host_bytes: float = _COPY_SHARE * 63e9
    launch_seconds: float = 3.5e-5
    cpu_adam_parameters: float = 2.4e9
    link_bytes: float = 50e9
    nvme_bytes: float = 3e9
    device: str = "cuda"

    def as_plain(self) -> dict[str, float]:
        """Its figures by name, to six digits; `probed_rates` reads them."""
        values = dataclasses.asdict(self)
        return {name: float(f"{value:.6g}") for name, value in values.items() if name != "device"}


H200_RATES = Rates()
# What a few cores of a server do, where no probe has measured them.
CPU_RATES = Rates(
    matmul_flops=1e11,
    fp32_matmul_flops=1e11,
    matmul_half_size=100.0,
    memory_bytes=1e10,
    host_bytes=1e10,
    launch_seconds=2e-5,
    cpu_adam_parameters=4e8,
    link_bytes=5e9,
    device="cpu",
)


def rates_of(gpu_name: str) -> Rates:
    """The rates that follow from a GPU's published ones; the host's are those of a usual server.

    Raises:
        UsageError: the GPU is not in the shipped table.
    """
    from autotune.gpus import find_gpu

    gpu = find_gpu(gpu_name)
    fp32 = gpu.bf16_flops / 2 if gpu.bf16 else gpu.fp32_flops
    pcie = _PCIE_LANE_BYTES_PER_SECOND[gpu.pcie_generation] * gpu.pcie_lanes
    return Rates(
        matmul_flops=_MATMUL_SHARE * gpu.bf16_flops,
        fp32_matmul_flops=_MATMUL_SHARE * fp32,
        # Fewer units are filled by smaller matrices: an H200 has 990e12.
        matmul_half_size=_HALF_SIZE * (gpu.bf16_flops / 990e12) ** 0.5,
        memory_bytes=_STREAM_SHARE * gpu.memory_bandwidth_bytes_per_second,
        host_bytes=_COPY_SHARE * pcie,
        link_bytes=_COPY_SHARE * pcie,
    )


def probed_rates(probed: Mapping[str, Any], otherwise: Rates) -> Rates:
    """The rates with what a machine's probe measured in place of what the table says.

    Args:
        probed: what `trials.probe` reported; a figure that is missing or no positive number is left out.
        otherwise: the rates where nothing was measured.
    """
    names = {field.name for field in dataclasses.fields(Rates) if field.name != "device"}
    measured: dict[str, Any] = {
        name: float(value) for name, value in probed.items() if name in names and _is_rate(value)
    }
    return dataclasses.replace(otherwise, **measured)


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
