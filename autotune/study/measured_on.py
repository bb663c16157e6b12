"""The machine and the libraries that a study was measured with."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from trials.wire import Strict, TrialResult


class MeasuredOn(Strict):
    """What of a machine decides memory and speed, and nothing that says whose it is."""

    gpu_name: str | None = Field(None, description="as NVML names it; None on the CPU")
    driver: str | None = Field(None, description="the NVIDIA driver's version")
    host_cpus: int | None = Field(None, ge=1, description="logical processors; None: not recorded")
    versions: dict[str, str] = Field(default_factory=dict, description="of the libraries that matter")
    rates: dict[str, float] = Field(
        default_factory=dict, description="what it does per second, as `autotune.throughput.Rates` names it"
    )


def machine_of_results(results: Iterable[TrialResult]) -> MeasuredOn | None:
    """The machine as the last trial that knew its libraries reported it; None where none did."""
    known = [result for result in results if result.versions]
    if not known:
        return None
    gpu = known[-1].gpu
    return MeasuredOn(
        gpu_name=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        host_cpus=None,
        versions=known[-1].versions,
    )
