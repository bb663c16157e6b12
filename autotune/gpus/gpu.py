"""One kind of GPU."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trials.wire import Strict


class Gpu(Strict):
    """What a kind of GPU has and can do. Peaks are dense, without structured sparsity."""

    name: str = Field(description="as nvidia-smi prints it; with the size where it prints one name for two")
    aliases: tuple[str, ...] = Field((), description="further names that mean exactly this one")
    architecture: str = Field(description="NVIDIA's name of the generation")
    compute_capability: str = Field(description="`major.minor`")
    marketed_memory_bytes: int = Field(gt=0, description="what the box says, in powers of two")
    memory_bytes: int = Field(gt=0, description="what the driver has to give: memory.total of nvidia-smi")
    memory_source: Literal["driver", "derived"] = Field(
        description="read off a driver, or off a like board's"
    )
    bf16: bool = Field(description="native bf16: compute capability 8.0 and later")
    memory_bandwidth_bytes_per_second: float = Field(gt=0)
    bf16_flops: float = Field(gt=0, description="16-bit tensor peak; fp16 where bf16 is missing")
    fp32_flops: float = Field(gt=0, description="outside the tensor cores")
    pcie_generation: int = Field(ge=3, le=6)
    pcie_lanes: int = Field(16, ge=1, le=16)
    sources: tuple[str, ...] = Field(description="where the figures were published")
