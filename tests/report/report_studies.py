"""Studies of every kind that a report may meet, made with the real study on real SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.report.evidence import Evidence, gather
from autotune.study import Study, StudyInputs
from trials.wire import GpuState, Outcome, Phase, Point, TrialResult

GIB = 2**30
BUDGET = 24 * GIB
OUTSIDE = 2 * GIB
LAYERS = 32
HOSTILE = "</script><script>window.hacked = true</script><img src=x onerror='window.hacked = true'>&amp;"
VERSIONS = {"torch": "2.11.0", "deepspeed": "0.19.8", "transformers": "5.17.0"}
GPU = GpuState(
    name="NVIDIA H200", driver="580.65", sm_clock_mhz=1980, temperature_celsius=51, power_watts=612.4
)
WINNER = Point(
    micro_batch_size=4, gradient_accumulation_steps=8, checkpoint_fraction=0.5, lora_rank=16, zero_stage=0
)


def inputs(**values: Any) -> StudyInputs:
    """Inputs of a tuning of an 8B model on an H200 in 24 GiB."""
    return StudyInputs(
        **{
            "model": "llama3.1-8b",
            "model_digest": "0123",
            "method": "lora",
            "seq_len": 1024,
            "global_batch": 32,
            "budget_bytes": BUDGET,
            "device": "cuda",
            "gpu_name": "NVIDIA H200",
            "space_name": "lora",
            "space_digest": "4567",
            **values,
        }
    )


def new_study(folder: Path, **values: Any) -> Study:
    """An empty study in `s.db`; it does not hold its model, so nothing is predicted for its report."""
    study = Study.open(f"sqlite:///{folder / 's.db'}", inputs(**values))
    study.set_note("command", "autotune run --model llama3.1-8b --gpu-budget 24GB")
    study.set_note("trials", 40)
    return study


def evidence_of(study: Study, folder: Path) -> Evidence:
    """The study as its report reads it."""
    return gather(study, f"sqlite:///{folder / 's.db'}")


def needs(point: Point) -> int:
    """Memory by a rule of thumb: weights, and activations of the layers that keep them."""
    per_sequence = 0.09 * GIB * (LAYERS * (1 - point.checkpoint_fraction) + 3)
    return int(
        OUTSIDE + 15 * GIB * 0.55 + point.lora_rank * 0.01 * GIB + point.micro_batch_size * per_sequence
    )


def speed(point: Point) -> float:
    """Throughput by a rule of thumb: larger micro batches and less recomputation are faster."""
    batch = point.micro_batch_size / (point.micro_batch_size + 1.2)
    rank = 1.0 - point.lora_rank / 2000
    return (
        15_000.0 * batch * rank * (1.0 - 0.25 * point.checkpoint_fraction) * (0.93 if point.zero_stage else 1)
    )


def good(point: Point, **values: Any) -> TrialResult:
    """What a trial of this point measures."""
    fast = values.pop("tokens_per_second", speed(point))
    peak = needs(point) - OUTSIDE
    return TrialResult(
        **{
            "trial_id": "t",
            "outcome": Outcome.OK,
            "phase": Phase.LATER_STEP,
            "tokens_per_second": fast,
            "tokens_per_second_low": 0.99 * fast,
            "tokens_per_second_high": 1.008 * fast,
            "step_seconds": (2.9, 2.91, 2.88, 2.9),
            "peak_allocated_bytes": peak - 100 * 2**20,
            "setup_peak_allocated_bytes": 9 * GIB,
            "phase_peak_allocated_bytes": {
                "load": 8 * GIB,
                "start": 9 * GIB,
                "later_step": peak - 100 * 2**20,
            },
            "peak_reserved_bytes": peak + GIB // 2,
            "outside_allocator_bytes": OUTSIDE,
            "device_bytes": peak + GIB // 2 + OUTSIDE,
            "required_device_bytes": peak + OUTSIDE,
            "host_peak_bytes": 9 * GIB,
            "trainable_parameters": 42_000_000,
            "total_parameters": 8_030_000_000,
            "tf32": False,
            "ds_config": {
                "train_micro_batch_size_per_gpu": point.micro_batch_size,
                "bf16": {"enabled": True},
            },
            "versions": VERSIONS,
            "gpu": GPU,
            **values,
        }
    )


def bad(outcome: Outcome, **values: Any) -> TrialResult:
    """What a trial that did not run reports."""
    return TrialResult(**{"trial_id": "t", "outcome": outcome, "phase": Phase.BACKWARD, **values})


def predicted(point: Point) -> dict[str, Any]:
    """What was kept of a prediction: half a percent above what is measured."""
    peak = int(1.005 * (needs(point) - OUTSIDE - 100 * 2**20))
    weights, logits = 8 * GIB, GIB
    return {
        "peak_allocated_bytes": peak,
        "setup_peak_allocated_bytes": 9 * GIB,
        "required_device_bytes": peak + OUTSIDE + 100 * 2**20,
        "confirmed_required_device_bytes": peak + OUTSIDE + 100 * 2**20,
        "outside_allocator_bytes": OUTSIDE,
        "host_peak_bytes": 9 * GIB,
        "phase_peak_allocated_bytes": {"load": 8 * GIB, "start": 9 * GIB, "later_step": peak},
        "breakdown": {"weights": weights, "logits and loss": logits, "activations": peak - weights - logits},
        "phase": "backward",
        "exact": True,
        "correction_bytes": {},
    }


def add(study: Study, point: Point, result: TrialResult, *, with_prediction: bool = True) -> int:
    """A finished trial."""
    number = study.begin(point, predicted(point) if with_prediction else None)
    study.finish(number, result)
    return number


def grid() -> list[Point]:
    """Points over three knobs, in an order in which the fast ones do not come first."""
    points = [
        WINNER.model_copy(
            update={
                "micro_batch_size": size,
                "gradient_accumulation_steps": 32 // size,
                "checkpoint_fraction": fraction,
                "lora_rank": rank,
            }
        )
        for size in (1, 2, 4, 8)
        for fraction in (1.0, 0.5, 0.0)
        for rank in (16, 64)
    ]
    return [points[(7 * index) % len(points)] for index in range(len(points))]


def full_study(folder: Path) -> Study:
    """A confirmed winner among 24 trials with out-of-memory, stopped, crashed and other trials."""
    study = new_study(folder)
    study.set_note("skipped", 112)
    study.set_note("remaining", {"share": 0.004, "beaten": 0.07, "margin": 0.02, "points": 310})
    endings = {
        1: bad(Outcome.CRASH, message=f"RuntimeError: {HOSTILE}"),
        4: bad(Outcome.TIMEOUT),
        8: bad(Outcome.NAN, message="the loss is NaN"),
        11: bad(Outcome.HOST_OOM, host_peak_bytes=90 * GIB),
    }
    for index, point in enumerate(grid()):
        short = needs(point) - BUDGET
        if short > 0:
            add(study, point, bad(Outcome.OOM, oom_short_bytes=short, oom_requested_bytes=short + GIB))
        elif index in endings:
            add(study, point, endings[index])
        elif speed(point) < 7000:
            add(study, point, good(point, outcome=Outcome.STOPPED))
        else:
            add(study, point, good(point))
    best = max((p for p in grid() if needs(p) <= BUDGET), key=speed)
    phases = good(best).phase_peak_allocated_bytes | {"evaluation": 9 * GIB, "saving": 9 * GIB}
    longer = good(
        best,
        tokens_per_second=0.994 * speed(best),
        required_verified=True,
        phase_peak_allocated_bytes=phases,
        step_seconds=(2.9,) * 20,
    )
    study.add_confirmation(best, longer)
    return study


def empty_study(folder: Path) -> Study:
    """A study that was begun and nothing more."""
    return new_study(folder)


def hopeless_study(folder: Path) -> Study:
    """Three trials, all out of memory: one says by how much, one while loading, one of host memory."""
    study = new_study(folder)
    points = grid()[:3]
    add(study, points[0], bad(Outcome.OOM, oom_short_bytes=3 * GIB))
    add(study, points[1], bad(Outcome.OOM, phase=Phase.LOAD), with_prediction=False)
    add(study, points[2], bad(Outcome.HOST_OOM), with_prediction=False)
    return study


def single_study(folder: Path) -> Study:
    """One trial that ran; nothing was predicted and no interval is known."""
    study = new_study(folder)
    brief = good(WINNER, tokens_per_second_low=None, tokens_per_second_high=None, step_seconds=(2.9,))
    add(study, WINNER, brief, with_prediction=False)
    return study


def unconfirmed_study(folder: Path) -> Study:
    """Two trials; the longer run of the faster one went out of memory, so the other leads, unconfirmed."""
    study = new_study(folder, model=HOSTILE)
    faster = WINNER.model_copy(update={"checkpoint_fraction": 0.0, "micro_batch_size": 8})
    add(study, WINNER, good(WINNER))
    add(study, faster, good(faster))
    study.add_confirmation(faster, bad(Outcome.OOM, phase=Phase.EVALUATION, oom_short_bytes=GIB))
    return study
