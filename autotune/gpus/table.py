"""Reads the shipped table of GPUs."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import Field

from autotune.gpus.gpu import Gpu
from trials.wire import Strict

_MIB = 2**20
_GIB = 2**30
_FIRST_BF16_CAPABILITY = (8, 0)


class _Entry(Strict):
    """One entry as it stands in gpus.yaml, which explains the fields."""

    name: str
    aliases: tuple[str, ...] = ()
    architecture: str
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    memory: int
    memory_mib: int
    memory_source: Literal["driver", "derived"] = "driver"
    memory_bandwidth: float
    tensor_tflops: float
    fp32_tflops: float
    pcie_generation: int
    pcie_lanes: int = 16
    sources: tuple[str, ...] = Field(min_length=1)


class _Table(Strict):
    sources: dict[str, str]
    gpus: tuple[_Entry, ...]


@lru_cache(maxsize=1)
def list_gpus() -> tuple[Gpu, ...]:
    """All GPUs of the table, in its order: by market, then by generation."""
    text = resources.files("autotune.gpus").joinpath("gpus.yaml").read_text(encoding="utf-8")
    # libyaml where it is there: the pure Python loader takes a tenth of a second longer.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    table = _Table.model_validate(yaml.load(text, Loader=loader))
    return tuple(_gpu(entry, table.sources) for entry in table.gpus)


def _gpu(entry: _Entry, sources: dict[str, str]) -> Gpu:
    major, minor = entry.compute_capability.split(".")
    return Gpu(
        name=entry.name,
        aliases=entry.aliases,
        architecture=entry.architecture,
        compute_capability=entry.compute_capability,
        marketed_memory_bytes=entry.memory * _GIB,
        memory_bytes=entry.memory_mib * _MIB,
        memory_source=entry.memory_source,
        bf16=(int(major), int(minor)) >= _FIRST_BF16_CAPABILITY,
        memory_bandwidth_bytes_per_second=entry.memory_bandwidth * 1e9,
        bf16_flops=entry.tensor_tflops * 1e12,
        fp32_flops=entry.fp32_tflops * 1e12,
        pcie_generation=entry.pcie_generation,
        pcie_lanes=entry.pcie_lanes,
        sources=tuple(sources[key] for key in entry.sources),
    )
