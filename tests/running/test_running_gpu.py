"""Real trials on a GPU: the cap is a real out-of-memory, NVML stays under the budget, and claims are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from trial_runs import Trials

from autotune.models import resolve_model
from autotune.running import OutsideShare, inspect_machine, needed_ops
from autotune.running.runner import TrialRunner
from trials.wire import ModelSpec, Outcome, Phase, Point

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(1800)]

GIB = 1 << 30
POINTS = (
    Point(),
    Point(zero_stage=2),
    Point(zero_stage=3),
    Point(zero_stage=2, offload="optimizer"),
    Point(zero_stage=3, offload="optimizer+parameters"),
    Point(lora_rank=16),
    Point(lora_rank=16, quantization="nf4"),
)


def layered(layers: int) -> ModelSpec:
    """A Llama of some hundred million parameters: large beside the allocator's pages, quick to build."""
    spec = resolve_model("tinyllama-1.1b")
    return spec.model_copy(update={"config": {**spec.config, "num_hidden_layers": layers}})


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Trials on the GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    machine = inspect_machine("cuda")
    with TrialRunner("cuda", model_type="llama", log_dir=folder) as runner:
        trials = Trials(runner, folder, "cuda", tuple(sorted(needed_ops(POINTS, machine))))
        trials.torch_adam = machine.torch_adam
        yield trials


@pytest.fixture(scope="module")
def outside(gpu: Trials, tmp_path_factory: pytest.TempPathFactory) -> OutsideShare:
    """The machine's share outside the allocator, measured."""
    folder = tmp_path_factory.mktemp("probes")
    share = OutsideShare(inspect_machine("cuda"), folder)
    share.measure(gpu.runner, POINTS, folder, lambda message: None)
    return share


def test_the_share_outside_the_allocator_is_that_of_a_cuda_context(outside: OutsideShare) -> None:
    # A context and its libraries take some hundred MiB to some GiB on every card since Ampere.
    for point in POINTS:
        assert 200 << 20 < outside.bytes_for(point) < 5 * GIB


@pytest.mark.parametrize(
    "point", POINTS, ids=lambda point: f"{point.method}-{point.zero_stage}-{point.offload}"
)
def test_a_winner_holds_no_more_than_its_budget_and_runs_under_its_claim(
    gpu: Trials, outside: OutsideShare, point: Point
) -> None:
    budget = outside.bytes_for(point) + 12 * GIB
    result = gpu.run(
        point,
        model=layered(4),
        seq_len=512,
        budget_bytes=budget,
        outside_allocator_bytes=outside.bytes_for(point),
        confirm=True,
        timeout_seconds=300,
    )
    assert result.outcome is Outcome.OK, result.message
    assert gpu.phases() == ["load", "start", "first_step", "later_step", "evaluation", "saving", "later_step"]
    assert result.required_verified
    assert result.required_device_bytes is not None and result.device_bytes is not None
    assert result.required_device_bytes <= result.device_bytes + (64 << 20) <= budget + (64 << 20)
    # NVML's figure is the reservation and the rest; neither can be without the other.
    assert result.peak_reserved_bytes is not None and result.peak_reserved_bytes < result.device_bytes
    assert result.peak_allocated_bytes is not None
    assert result.peak_allocated_bytes <= result.peak_reserved_bytes
    assert result.gpu is not None and result.gpu.name and result.gpu.driver
    assert result.tf32 is not None


def test_a_cap_below_the_need_is_a_real_out_of_memory_and_above_it_is_none(
    gpu: Trials, outside: OutsideShare
) -> None:
    point, share = Point(micro_batch_size=4), outside.bytes_for(Point())
    run: dict[str, Any] = {"model": layered(2), "seq_len": 512, "outside_allocator_bytes": share}
    free = gpu.run(point, **run)
    assert free.outcome is Outcome.OK, free.message
    assert free.required_device_bytes is not None and free.peak_allocated_bytes is not None
    peaks = free.phase_peak_allocated_bytes
    highest = max(peaks.values())
    enough = gpu.run(point, budget_bytes=share + int(1.03 * highest) + (40 << 20), **run)
    assert enough.outcome is Outcome.OK, enough.message
    for cap, phases in (
        (peaks["load"] // 2, {Phase.LOAD}),
        ((peaks["load"] + peaks["start"]) // 2, {Phase.START}),
        (int(0.9 * highest), set(Phase) - {Phase.EVALUATION, Phase.SAVING}),
    ):
        result = gpu.run(point, budget_bytes=share + cap, **run)
        assert result.outcome is Outcome.OOM, result.message
        assert result.phase in phases
        assert result.oom_requested_bytes is not None and result.oom_requested_bytes > 0
        assert result.oom_short_bytes is not None and 0 < result.oom_short_bytes <= result.oom_requested_bytes
        assert result.peak_reserved_bytes is not None and result.peak_reserved_bytes <= cap
    assert gpu.run(point, **run).outcome is Outcome.OK


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_loading_a_quantised_base_holds_no_more_than_it_and_one_layer(gpu: Trials, quantization: Any) -> None:
    layers = 16
    result = gpu.run(Point(lora_rank=16, quantization=quantization), model=layered(layers), seq_len=512)
    assert result.outcome is Outcome.OK, result.message
    # TinyLlama: query and output 2048 x 2048, key and value 256 x 2048, three of 5632 x 2048; ends in bf16.
    linear = 2 * 2048 * 2048 + 2 * 256 * 2048 + 3 * 5632 * 2048
    ends = 2 * 2 * 32000 * 2048
    # NF4 with double quantization: 4.127 bits a weight; int8: 8 bits and one fp32 scale a row.
    per_weight = 4.127 / 8 if quantization == "nf4" else 1.01
    quantised = layers * linear * per_weight + ends
    # A layer is there in bf16 while it is quantised; the adapters are bf16.
    one_layer = 2 * linear
    adapters = 2 * 16 * layers * (2 * 4096 + 2 * 2304 + 3 * 7680)
    load = result.phase_peak_allocated_bytes["load"]
    assert 0.95 * quantised < load < 1.02 * quantised + one_layer + adapters
    assert load < layers * linear * 2 + ends


def test_deepspeeds_fused_adam_runs_where_it_can_be_compiled(gpu: Trials) -> None:
    if "fused_adam" in gpu.missing_ops or gpu.torch_adam:
        pytest.skip(
            f"fused_adam cannot be built here: {gpu.missing_ops.get('fused_adam', 'no CUDA compiler')}"
        )
    result = gpu.run(Point(), torch_adam=False)
    assert result.outcome is Outcome.OK, result.message
    assert result.ds_config is not None
    assert "torch_adam" not in result.ds_config["optimizer"]["params"]


@pytest.mark.parametrize(
    "values",
    [
        {"precision": "fp16"},
        {"precision": "fp32"},
        {"liger_kernel": True},
        {"optimizer": "adamw8bit", "zero_stage": 2},
        {"optimizer": "paged_adamw8bit"},
        {"lora_rank": 8, "quantization": "nf4", "zero_stage": 3, "offload": "optimizer+parameters"},
        {"attention": "eager", "checkpoint_fraction": 0.5},
    ],
    ids=str,
)
def test_what_only_a_gpu_can_do_runs(gpu: Trials, values: dict[str, Any]) -> None:
    if "liger_kernel" in values:
        pytest.importorskip("liger_kernel")
    result = gpu.run(Point(**values))
    assert result.outcome is Outcome.OK, result.message


def test_fused_loss_needs_less_memory_than_logits_do(gpu: Trials) -> None:
    pytest.importorskip("liger_kernel")
    plain, fused = (
        gpu.run(Point(micro_batch_size=8, liger_kernel=value), model=layered(2), seq_len=1024)
        for value in (False, True)
    )
    assert plain.peak_allocated_bytes is not None and fused.peak_allocated_bytes is not None
    # Three fp32 copies of 8 x 1024 x 32000 logits come to 2.9 GiB.
    assert plain.peak_allocated_bytes - fused.peak_allocated_bytes > 2 * GIB


def test_an_evaluation_with_fused_loss_makes_no_logits(gpu: Trials) -> None:
    pytest.importorskip("liger_kernel")
    plain, fused = (
        gpu.run(
            Point(micro_batch_size=8, liger_kernel=value), model=layered(2), seq_len=1024, confirm=True
        ).phase_peak_allocated_bytes["evaluation"]
        for value in (False, True)
    )
    # In bf16 and once more in fp32 they are six bytes each.
    assert plain - fused > 4 * 8 * 1024 * 32000


def test_offloading_leaves_the_gpu_less_to_hold(gpu: Trials) -> None:
    results = [
        gpu.run(Point(zero_stage=3, offload=offload), model=layered(4), seq_len=128)
        for offload in ("none", "optimizer", "optimizer+parameters")
    ]
    assert all(result.outcome is Outcome.OK for result in results), [result.message for result in results]
    peaks = [result.peak_allocated_bytes or 0 for result in results]
    assert peaks[0] > peaks[1] > peaks[2]
    # Parameter offload builds the model module by module: it is never whole on the GPU.
    whole = 2 * (results[0].total_parameters or 0)
    assert results[2].phase_peak_allocated_bytes["load"] < 0.6 * whole


def test_a_killed_trial_gives_its_memory_back(gpu: Trials) -> None:
    from trials.nvml import open_nvml

    def kill(event: dict[str, Any]) -> None:
        if event.get("index") == 1:
            for child in gpu.server().children():
                child.kill()

    nvml = open_nvml()
    assert nvml is not None
    before = nvml.used_bytes
    result = gpu.run(
        model=layered(2), on_event=kill, max_timed_steps=100_000, measure_seconds=600.0, target_spread=0.0
    )
    assert result.outcome is Outcome.CRASH
    assert nvml.used_bytes <= before + (64 << 20)
    assert gpu.run().outcome is Outcome.OK


LIVE: dict[str, Any] = {"seq_len": 1024, "fresh": False}
SMALL: dict[str, Any] = {
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 2,
    "checkpoint_fraction": 1.0,
}


@pytest.mark.parametrize(
    "build",
    [{}, {"zero_stage": 2, "offload": "optimizer"}, {"zero_stage": 3, "lora_rank": 16}],
    ids=str,
)
def test_a_reused_engine_holds_what_a_fresh_one_does(gpu: Trials, build: dict[str, Any]) -> None:
    model = layered(4)
    first = gpu.run(Point(**build, micro_batch_size=8), model=model, **LIVE)
    reused = gpu.run(Point(**build, **SMALL), model=model, **LIVE)
    fresh = gpu.run(Point(**build, **SMALL), model=model, **{**LIVE, "fresh": True})
    assert all(one.outcome is Outcome.OK for one in (first, reused, fresh)), reused.message
    assert [first.build, reused.build, fresh.build] == ["fresh", "reused", "fresh"]
    assert first.peak_allocated_bytes is not None
    for phase in ("first_step", "later_step"):
        ours, theirs = (one.phase_peak_allocated_bytes[phase] for one in (reused, fresh))
        # The logits of the first point alone are more than that.
        assert abs(ours - theirs) < 0.005 * theirs + 16 * (1 << 20) < 0.1 * first.peak_allocated_bytes
    assert reused.required_device_bytes is not None and fresh.required_device_bytes is not None
    assert (
        abs(reused.required_device_bytes - fresh.required_device_bytes) < 0.02 * fresh.required_device_bytes
    )
    assert reused.device_bytes is not None and fresh.device_bytes is not None
    assert reused.device_bytes < 1.1 * fresh.device_bytes
    assert reused.disturbed is None or reused.tokens_per_second is not None


@pytest.mark.parametrize("build", [{}, {"zero_stage": 2}, {"zero_stage": 3}], ids=str)
def test_an_out_of_memory_on_a_live_engine_costs_no_new_start(gpu: Trials, build: dict[str, Any]) -> None:
    model = layered(4)
    run: dict[str, Any] = {"model": model, **LIVE}
    small = gpu.run(Point(**build), **run)
    assert small.required_device_bytes is not None
    limited = {**run, "budget_bytes": int(1.2 * small.required_device_bytes) + GIB}
    [before] = gpu.server().children()
    failed = gpu.run(Point(**build, micro_batch_size=64), **limited)
    assert failed.outcome is Outcome.OOM, failed.message
    assert failed.build == "reused" and failed.oom_short_bytes is not None
    again = gpu.run(Point(**build), **limited)
    assert (again.outcome, again.build) == (Outcome.OK, "reused"), again.message
    assert [process.pid for process in gpu.server().children()] == [before.pid]
    for phase in ("first_step", "later_step"):
        ours, theirs = (one.phase_peak_allocated_bytes[phase] for one in (again, small))
        assert abs(ours - theirs) < 0.005 * theirs + 16 * (1 << 20)


def test_a_live_engine_gives_its_memory_back_when_it_is_released(gpu: Trials) -> None:
    from trials.nvml import open_nvml

    nvml = open_nvml()
    assert nvml is not None
    gpu.runner.release()
    before = nvml.used_bytes
    assert gpu.run(model=layered(2), **LIVE).outcome is Outcome.OK
    assert nvml.used_bytes > before + GIB
    gpu.runner.release()
    assert gpu.server().children() == []
    assert nvml.used_bytes <= before + (64 << 20)
