"""What a tuning decides from values alone: budget, first point, early stop, candidates, repeated failures."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.gpus import find_gpu
from autotune.study import Record
from autotune.tuning.budget import choose_budget
from autotune.tuning.candidates import Candidates
from autotune.tuning.repeats import repeated_failure, repeated_problem
from autotune.tuning.smallest import memory_key, safest_point, smallest_point
from autotune.tuning.stopping import decided_below, stop_below
from trials.wire import Outcome, Phase, Point, TrialResult

GIB = 2**30
H200 = {"device": "cuda", "device_total_bytes": 140 * GIB, "device_name": "NVIDIA H200"}
CPU = {"device": "cpu", "device_total_bytes": 24 * GIB, "device_name": None}


def _budget(machine: dict[str, Any], budget_bytes: int | None = None, gpu_model: str | None = None) -> int:
    return choose_budget(**machine, budget_bytes=budget_bytes, gpu_model=gpu_model).size_bytes


def test_the_budget_is_what_was_asked_or_the_card_s_or_the_whole_card() -> None:
    assert _budget(H200, 24 * GIB) == 24 * GIB
    assert _budget(H200, gpu_model="RTX 4090") == find_gpu("RTX 4090").memory_bytes
    assert _budget(H200) == 140 * GIB
    assert _budget(CPU, GIB) == GIB


@pytest.mark.parametrize(
    ("machine", "budget_bytes", "gpu_model", "words"),
    [
        (H200, 24 * GIB, "RTX 4090", "both"),
        (H200, 141 * GIB, None, "cannot be proven here: the NVIDIA H200 has 140"),
        (CPU, 25 * GIB, None, "cannot be proven here: this machine has 24"),
        (CPU, None, "H200", "cannot be proven here"),
        (CPU, None, None, "no GPU whose memory"),
    ],
)
def test_a_budget_that_cannot_be_held_to_is_refused(
    machine: dict[str, Any], budget_bytes: int | None, gpu_model: str | None, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _budget(machine, budget_bytes, gpu_model)

    assert words in caught.value.message
    assert caught.value.hint


SPACE = [
    Point(
        micro_batch_size=size, checkpoint_fraction=share, zero_stage=stage, offload=offload, lora_rank=rank,
        quantization=quantization,
    )
    for size, share, (stage, offload), rank, quantization in itertools.product(
        (1, 2, 8),
        (0.0, 0.5, 1.0),
        ((0, "none"), (1, "optimizer"), (2, "none"), (3, "optimizer+parameters")),
        (16, 64),
        ("none", "nf4"),
    )
]  # fmt: skip


def test_the_first_point_is_small_but_neither_offloads_nor_partitions_nor_quantises() -> None:
    for device in ("cuda", "cpu"):
        assert safest_point(SPACE, device) == Point(micro_batch_size=1, checkpoint_fraction=1.0, lora_rank=16)


def test_the_smallest_point_on_a_gpu_offloads_and_on_the_cpu_does_not() -> None:
    common = {"micro_batch_size": 1, "checkpoint_fraction": 1.0, "lora_rank": 16, "quantization": "nf4"}

    on_gpu = smallest_point(SPACE, "cuda")
    on_cpu = smallest_point(SPACE, "cpu")

    assert on_gpu == Point(zero_stage=3, offload="optimizer+parameters", **common)
    assert on_cpu == Point(zero_stage=0, offload="none", **common)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ({"micro_batch_size": 1}, {"micro_batch_size": 2}),
        ({"checkpoint_fraction": 1.0}, {"checkpoint_fraction": 0.5}),
        ({"lora_rank": 16, "quantization": "nf4"}, {"lora_rank": 16, "quantization": "int8"}),
        ({"lora_rank": 16, "quantization": "int8"}, {"lora_rank": 16}),
        ({"lora_rank": 16}, {"lora_rank": 64}),
        ({"lora_rank": 64}, {"lora_rank": 0}),
        ({"precision": "bf16"}, {"precision": "fp32"}),
        ({"optimizer": "adamw8bit"}, {"optimizer": "adamw"}),
        ({"liger_kernel": True}, {"liger_kernel": False}),
        ({"attention": "sdpa"}, {"attention": "eager"}),
    ],
)
def test_whatever_lowers_memory_alone_comes_first(smaller: dict[str, Any], larger: dict[str, Any]) -> None:
    for device in ("cuda", "cpu"):
        assert memory_key(Point(**smaller), device) < memory_key(Point(**larger), device)


def _result(outcome: Outcome = Outcome.OK, speed: float | None = None, message: str = "") -> TrialResult:
    return TrialResult(
        trial_id="t", outcome=outcome, phase=Phase.LATER_STEP, tokens_per_second=speed, message=message
    )


def _timed(speed: float, low: float, high: float) -> TrialResult:
    return _result(speed=speed).model_copy(
        update={"tokens_per_second_low": low, "tokens_per_second_high": high}
    )


def _record(number: int, point: Point, result: TrialResult | None) -> Record:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Record(number, point, result, None, now, now if result else None)


def test_nothing_is_stopped_before_its_kind_has_been_measured() -> None:
    lora = _record(0, Point(lora_rank=16), _result(speed=1000.0))
    slow = _record(1, Point(lora_rank=16, micro_batch_size=2), _result(Outcome.OOM))

    assert stop_below(Point(lora_rank=16), []) is None
    assert stop_below(Point(lora_rank=16), [slow]) is None
    assert stop_below(Point(lora_rank=16, zero_stage=1), [lora, slow]) == pytest.approx(900.0)
    # Full fine-tuning is a price of its own: nothing is known of it yet.
    assert stop_below(Point(), [lora]) is None


def test_a_point_may_finish_while_it_can_become_the_best_of_one_of_its_values() -> None:
    records = [
        _record(0, Point(lora_rank=16), _result(speed=2000.0)),
        _record(1, Point(lora_rank=64), _result(speed=1000.0)),
        _record(2, Point(lora_rank=64, micro_batch_size=2), _result(Outcome.STOPPED, speed=5000.0)),
    ]

    assert stop_below(Point(lora_rank=16, zero_stage=1), records) == pytest.approx(1800.0)
    assert stop_below(Point(lora_rank=64, zero_stage=1), records) == pytest.approx(900.0)
    assert stop_below(Point(lora_rank=32), records) is None


def test_what_is_surely_slower_need_not_become_more_precise() -> None:
    best = _record(0, Point(lora_rank=16), _timed(1000.0, 990.0, 1010.0))
    narrower = _record(1, Point(lora_rank=16, micro_batch_size=2), _timed(995.0, 994.0, 996.0))
    noisy = _record(2, Point(lora_rank=16, micro_batch_size=4), _timed(1001.0, 950.0, 1050.0))
    point = Point(lora_rank=16, zero_stage=1)

    assert decided_below(point, []) is None
    assert decided_below(Point(), [best]) is None
    # Within 1 % of the fastest is a tie, and so is what reaches into its interval.
    assert decided_below(point, [best, narrower]) == pytest.approx(990.0)
    assert decided_below(point, [best, narrower, noisy]) == pytest.approx(950.0)


def test_measured_and_dominated_points_are_no_candidates_and_those_that_may_run_again_are() -> None:
    points = [Point(micro_batch_size=size) for size in (1, 2, 4, 8)]
    candidates = Candidates(points)
    records = [
        _record(0, points[0], _result(speed=1.0)),
        _record(1, points[2], _result(Outcome.OOM)),
    ]

    candidates.update(records)

    # 8 needs more than 4, which did not fit.
    assert candidates.remaining() == [points[1]]
    assert len(candidates) == 1


def test_a_crash_excludes_only_its_own_point_and_a_running_one_is_taken() -> None:
    points = [Point(micro_batch_size=size) for size in (1, 2, 4, 8)]
    candidates = Candidates(points)

    candidates.update([_record(0, points[1], _result(Outcome.CRASH)), _record(1, points[0], None)])

    assert candidates.remaining() == points[2:]


def test_a_running_trial_that_then_fails_for_memory_still_excludes_what_needs_more() -> None:
    points = [Point(micro_batch_size=size) for size in (1, 2, 4)]
    candidates = Candidates(points)

    candidates.update([_record(0, points[1], None)])
    candidates.update([_record(0, points[1], _result(Outcome.OOM))])

    assert candidates.remaining() == points[:1]


def test_three_equal_failures_in_a_row_are_a_fault_of_the_machine() -> None:
    crashes = [
        _result(Outcome.CRASH, message=f"no module libfoo.so.{i} at 0x7f{i}a\ntrace") for i in range(3)
    ]

    assert repeated_failure(crashes) is crashes[-1]
    assert repeated_failure(crashes[:2]) is None
    problem = repeated_problem(crashes[-1], Path("/logs/trial-3.log"))
    assert "no module libfoo.so.2 at 0x7f2a" in problem.message and "\n" not in problem.message
    assert "/logs/trial-3.log" in problem.hint


def test_different_failures_or_failures_for_memory_are_not() -> None:
    crash = _result(Outcome.CRASH, message="one thing")
    other = _result(Outcome.CRASH, message="another thing")
    oom = _result(Outcome.OOM, message="out of memory")

    assert repeated_failure([crash, crash, other]) is None
    assert repeated_failure([crash, oom, crash]) is None
    assert repeated_failure([oom, oom, oom]) is None
    assert repeated_failure([crash, _result(speed=1.0), crash, crash]) is None


def test_three_trials_without_enough_time_are_told_about_their_time() -> None:
    timeouts = [_result(Outcome.TIMEOUT, message=f"ended after {i} s") for i in range(3)]

    failure = repeated_failure(timeouts)
    assert failure is not None
    assert "--trial-timeout" in repeated_problem(failure, Path("x")).hint
