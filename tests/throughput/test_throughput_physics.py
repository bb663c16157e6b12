"""The time of a step follows from what it has to do."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from autotune.models import resolve_model
from autotune.space import Capabilities, Setting, enumerate_points, load_space
from autotune.throughput import H200_RATES, Belief, Training, Worked, predicted_speeds, rates_of
from autotune.throughput.coefficients import COEFFICIENTS
from autotune.throughput.physics import step_times
from autotune.throughput.rates import probed_rates
from autotune.throughput.work import work_of
from trials.wire import Point

QWEN = Training(resolve_model("qwen2.5-1.5b"), 1024)
GPU = Capabilities("cuda", bf16=True, fp16=True, liger=True, bitsandbytes=True)


def speed(point: Point, training: Training = QWEN) -> float:
    return predicted_speeds(training, [point])[0]


def changed(**fields: object) -> Point:
    return Point.model_validate({"micro_batch_size": 8, "gradient_accumulation_steps": 4, **fields})


def test_the_slopes_are_those_of_the_time() -> None:
    points = [changed(lora_rank=16, checkpoint_fraction=0.5), changed(zero_stage=2, offload="optimizer")]
    work = work_of(QWEN, points)
    logs = np.linspace(-0.3, 0.3, len(COEFFICIENTS))
    slopes = step_times(work, logs).slopes
    for index in range(len(COEFFICIENTS)):
        step = np.zeros(len(COEFFICIENTS))
        step[index] = 1e-5
        up, down = (step_times(work, logs + sign * step).log_seconds for sign in (1, -1))
        assert slopes[:, index] == pytest.approx((up - down) / 2e-5, abs=1e-6)


@pytest.mark.parametrize(
    "slower",
    [
        {"checkpoint_fraction": 1.0},
        {"zero_stage": 3},
        {"zero_stage": 2, "offload": "optimizer"},
        {"zero_stage": 3, "offload": "optimizer+parameters"},
        {"precision": "fp32"},
        {"attention": "eager"},
    ],
)
def test_what_costs_work_costs_speed(slower: dict[str, object]) -> None:
    assert speed(changed(**slower)) < speed(changed())


def test_a_small_micro_batch_is_bound_by_launches_and_a_large_one_by_the_gpu() -> None:
    points = [Point(micro_batch_size=size, lora_rank=16) for size in (1, 2, 32, 64)]
    one, two, many, most = predicted_speeds(QWEN, points)
    assert two > 1.7 * one
    assert most < 1.15 * many
    faster_host = dataclasses.replace(QWEN, rates=dataclasses.replace(H200_RATES, launch_seconds=1e-5))
    assert speed(points[0], faster_host) > 2 * one
    assert speed(points[3], faster_host) < 1.1 * most


def test_a_faster_gpu_is_faster_where_the_gpu_is_the_limit() -> None:
    large = changed(micro_batch_size=32)
    names = ("L4", "A100-SXM4-80GB", "H200")
    by_gpu = [speed(large, dataclasses.replace(QWEN, rates=rates_of(name))) for name in names]
    assert by_gpu == sorted(by_gpu) and by_gpu[2] > 5 * by_gpu[0]


def test_offload_waits_for_the_host() -> None:
    slow_host = dataclasses.replace(H200_RATES, cpu_adam_parameters=H200_RATES.cpu_adam_parameters / 10)
    training = dataclasses.replace(QWEN, rates=slow_host)
    offloaded = changed(zero_stage=2, offload="optimizer")
    assert speed(offloaded, training) < 0.4 * speed(offloaded)
    assert speed(changed(zero_stage=2), training) == speed(changed(zero_stage=2))


def test_lora_skips_the_gradients_of_frozen_weights() -> None:
    wide = Training(resolve_model("llama2-70b"), 1024)
    # 6 operations a weight against 4, less what adapters cost; of a narrow model that is nearly all.
    assert 1.2 < speed(changed(lora_rank=16), wide) / speed(changed(), wide) < 1.5
    assert 0.9 < speed(changed(lora_rank=16)) / speed(changed()) < 1.1


def test_long_sequences_pay_for_attention() -> None:
    point = changed(micro_batch_size=1, gradient_accumulation_steps=32)
    at = {length: speed(point, dataclasses.replace(QWEN, seq_len=length)) for length in (8192, 32768)}
    assert at[32768] < 0.8 * at[8192]


def test_several_gpus_train_faster_together_and_not_quite_as_fast_as_each_alone() -> None:
    two = dataclasses.replace(QWEN, processes=2)
    assert 1.0 < speed(changed(zero_stage=2), two) / speed(changed(zero_stage=2)) < 2.0


def test_accumulation_spares_optimizer_steps() -> None:
    offload = {"zero_stage": 2, "offload": "optimizer"}
    more = changed(**offload, gradient_accumulation_steps=16)
    assert speed(more) > speed(changed(**offload, gradient_accumulation_steps=1))


def test_a_point_s_speed_does_not_depend_on_its_company() -> None:
    points = [changed(), changed(lora_rank=16), changed(zero_stage=3, liger_kernel=True)]
    together = predicted_speeds(QWEN, points)
    assert together == pytest.approx([speed(point) for point in points], rel=1e-12)
    assert predicted_speeds(QWEN, points[::-1]) == pytest.approx(together[::-1], rel=1e-12)
    assert predicted_speeds(QWEN, []) == []


@pytest.mark.parametrize(
    "name", ["gpt2", "opt-1.3b", "pythia-1b", "gemma2-2b", "bloom-560m", "phi-2", "mixtral-8x7b", "tiny-moe"]
)
def test_every_kind_of_model_has_a_speed(name: str) -> None:
    training = Training(resolve_model(name), 512)
    points = [changed(), changed(lora_rank=16, quantization="nf4"), changed(lora_rank=8, quantization="int8")]
    speeds = predicted_speeds(training, points)
    assert all(1.0 < one < 1e7 for one in speeds)


def test_thousands_of_points_take_less_than_half_a_second() -> None:
    points = enumerate_points(load_space("any"), Setting("any", 32, False, 1, 16, GPU)).points
    assert len(points) > 5000
    began = time.process_time()
    belief = Belief(Worked(Training(resolve_model("llama2-7b"), 1024), points))
    took = time.process_time() - began
    assert took < 0.5
    assert np.isfinite(belief.mean).all() and (belief.deviation > 0).all()


def test_measured_rates_replace_published_ones_and_nonsense_does_not() -> None:
    probed = {"matmul_flops": 6e14, "host_bytes": 0.0, "memory_bytes": float("nan"), "surprise": 1.0}
    rates = probed_rates(probed, H200_RATES)
    assert rates == dataclasses.replace(H200_RATES, matmul_flops=6e14)
