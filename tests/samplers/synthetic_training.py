"""A training that can be worked out by hand: speed and memory are plain formulas, and a part does not fit.

It is no model of anything measured. Speed saturates with the micro batch, recomputing costs a quarter, ZeRO
and offload cost more; memory grows with the micro batch and shrinks with recomputing. The best point lies on
the edge of what fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from autotune.models import resolve_model
from autotune.samplers import Knowledge, Proposer, make_sampler
from autotune.space import Capabilities, Setting, enumerate_points, load_space
from autotune.study import Record
from autotune.throughput import Training
from trials.wire import Outcome, Phase, Point, TrialResult

GPU = Capabilities("cuda", bf16=True, fp16=True, liger=True, bitsandbytes=True)
BUDGET_GIB = 12.0
# It is nothing like the formulas below, as a model of speed may be: samplers have to cope.
KNOWLEDGE = Knowledge(Training(resolve_model("llama3.2-1b"), seq_len=1024))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAGE_SPEED = {0: 1.0, 1: 0.97, 2: 0.95, 3: 0.8}
OFFLOAD_SPEED = {"none": 1.0, "optimizer": 0.6, "optimizer+parameters": 0.35}


def sampler(name: str, points: Sequence[Point], seed: int) -> Proposer:
    """A sampler that knows this training."""
    return make_sampler(name, points, seed, KNOWLEDGE)


def space_points(space: str) -> tuple[Point, ...]:
    """The points of a shipped space on a GPU, with a global batch of 32."""
    return enumerate_points(load_space(space), Setting("any", 32, False, 1, 16, GPU)).points


def tokens_per_second(point: Point) -> float:
    """Always above 0."""
    speed = 20_000 * point.micro_batch_size / (point.micro_batch_size + 1.5)
    speed *= (1 - 0.25 * point.checkpoint_fraction) * STAGE_SPEED[point.zero_stage]
    speed *= OFFLOAD_SPEED[point.offload] * (1.06 if point.liger_kernel else 1.0)
    return speed * (1 - 0.001 * point.lora_rank) * (0.85 if point.quantization == "nf4" else 1.0)


def need_gib(point: Point) -> float:
    """Always above 0."""
    base = 0.3 if "parameters" in point.offload else 1.8 if point.quantization == "nf4" else 3.0
    trained = 3.0 if point.lora_rank == 0 else 0.002 * point.lora_rank
    state = (
        trained * (12 if point.optimizer == "adamw8bit" else 18) * (1 if point.offload == "none" else 0.25)
    )
    kept = 2.2 * (1 - 0.9 * point.checkpoint_fraction) + (0.1 if point.liger_kernel else 1.5)
    return base + state + point.micro_batch_size * kept


def fits(point: Point) -> bool:
    return need_gib(point) <= BUDGET_GIB


def train(point: Point, *, number: int, unfit: Outcome = Outcome.OOM) -> Record:
    """What a trial of the point reports; `unfit` is the outcome where memory does not suffice."""
    if fits(point):
        result = TrialResult(
            trial_id=str(number),
            outcome=Outcome.OK,
            phase=Phase.LATER_STEP,
            tokens_per_second=tokens_per_second(point),
        )
    else:
        short = round((need_gib(point) - BUDGET_GIB) * 2**30)
        result = TrialResult(trial_id=str(number), outcome=unfit, phase=Phase.BACKWARD, oom_short_bytes=short)
    return Record(number, point, result, None, NOW, NOW)


def search(
    proposer: Proposer, points: Sequence[Point], trials: int, unfit: Outcome = Outcome.OOM
) -> list[Record]:
    """Lets a sampler choose, each point at most once."""
    history: list[Record] = []
    left = dict.fromkeys(points)
    while left and len(history) < trials:
        point = proposer.propose(history, list(left))
        del left[point]
        history.append(train(point, number=len(history), unfit=unfit))
    return history


def quality(history: Sequence[Record], points: Sequence[Point]) -> float:
    """The best speed found, as a share of the best there is."""
    found = [r.result.tokens_per_second or 0.0 for r in history if r.result]
    return max(found) / max(tokens_per_second(point) for point in points if fits(point))


def misfits(history: Sequence[Record]) -> int:
    """How many of the tried points did not fit."""
    return sum(not fits(record.point) for record in history)
