"""Which of DeepSpeed's operators are compiled before the first trial."""

from __future__ import annotations

import pytest
from machines import machine

from autotune.running import Machine, needed_ops
from trials.ops import BUILDERS
from trials.wire import Point

GPU, CPU = machine(), machine("cpu")
OFFLOAD = Point(zero_stage=2, offload="optimizer")
NVME = Point(zero_stage=3, offload="nvme_optimizer")


@pytest.mark.parametrize(
    ("points", "where", "expected"),
    [
        ([Point()], GPU, {"fused_adam"}),
        ([OFFLOAD], GPU, {"cpu_adam"}),
        ([Point(), OFFLOAD, NVME], GPU, {"fused_adam", "cpu_adam", "async_io"}),
        ([Point(lora_rank=8, optimizer="adamw8bit")], GPU, set()),
        ([Point()], machine(cuda_compiler=False), set()),
        ([Point(), OFFLOAD], machine(cuda_compiler=False), {"cpu_adam"}),
        ([Point(), OFFLOAD], machine(cuda_compiler=False, host_compiler=False), set()),
        ([Point()], CPU, {"shared_memory_communication"}),
        ([Point(), OFFLOAD], CPU, {"shared_memory_communication", "cpu_adam"}),
        ([], GPU, set()),
    ],
)
def test_operators_are_those_the_points_use_and_the_machine_can_compile(
    points: list[Point], where: Machine, expected: set[str]
) -> None:
    assert needed_ops(points, where) == expected


def test_every_name_has_a_builder() -> None:
    everything = needed_ops([Point(), OFFLOAD, NVME], GPU) | needed_ops([Point()], CPU)
    assert everything == BUILDERS.keys()
