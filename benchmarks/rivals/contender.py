"""What a contender is given and what it hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from autotune.running import OutsideShare, TrialRunner
from autotune.running.environment import trial_environment
from autotune.running.machine import Machine
from benchmarks.rivals.cases import Case, Setting
from trials.wire import Point, Strict

Status = Literal["finished", "cut", "failed"]


class Found(Strict):
    """A contender's result.

    `status` is `cut` where its time limit ended it; what it had found by then still counts. `failed` has its
    reason in `note`.
    """

    status: Status
    wall_seconds: float
    point: Point | None = None
    own_tokens_per_second: float | None = None
    tried: int = 0
    ooms: int = 0
    note: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One contender's run on one case.

    Attributes:
        case: what is trained.
        setting: under which conditions.
        machine: where.
        outside: the machine's shares outside the allocator.
        runner: a started process for trials of ours.
        runner_start_seconds: what its start took.
        folder: existing and empty, for the contender's files.
        limit_seconds: when it is ended.
    """

    case: Case
    setting: Setting
    machine: Machine
    outside: OutsideShare
    runner: TrialRunner
    runner_start_seconds: float
    folder: Path
    limit_seconds: float

    @property
    def outside_bytes(self) -> int:
        """The share outside the allocator of a plain run, which every contender's cap leaves free."""
        return self.outside.bytes_for(Point())

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """A contender's environment: offline, expandable segments on, this project importable."""
        result = trial_environment(self.setting.device, base)
        result.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        if self.machine.compute_capability is not None:
            # DeepSpeed's builder cannot read a value such as "9.0a"; the operators were built for this one.
            result["TORCH_CUDA_ARCH_LIST"] = ".".join(map(str, self.machine.compute_capability))
        return result
