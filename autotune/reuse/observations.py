"""Throughputs that other studies measured, for a model of speed to begin with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from autotune.reuse.profile import Profile
from autotune.reuse.similar import Similar
from autotune.study.record import Record
from trials.wire import ModelSpec, Outcome, Point

# A trial that was stopped after its first timed steps is known less well.
STOPPED_WEIGHT = 0.5


@dataclass(frozen=True)
class PriorObservation:
    """A throughput measured in another study.

    Attributes:
        model: what was trained.
        seq_len: tokens per sequence.
        point: the configuration.
        tokens_per_second: of all processes together.
        gpu_name: of the GPU; None on the CPU.
        processes: data-parallel processes.
        is_here: whether that is the kind of GPU at hand.
        weight: in [0, 1]; 1 counts as if it had been measured in the study at hand.
        rates: of its machine, as measured there; empty where they are not known.
    """

    model: ModelSpec
    seq_len: int
    point: Point
    tokens_per_second: float
    gpu_name: str | None
    processes: int
    is_here: bool
    weight: float
    rates: Mapping[str, float] = field(default_factory=dict)


def prior_observations(similar: Iterable[Similar], target: Profile) -> tuple[PriorObservation, ...]:
    """What similar studies measured of speed, the most trusted study's first, for another training."""
    ranked = sorted(similar, key=lambda one: -one.trust)
    return tuple(observation for one in ranked for observation in _of_study(one, target))


def speed_of(record: Record) -> float | None:
    """A record's throughput, also of a trial that was stopped early or had no room for what comes after its
    steps; None where there is none.
    """
    result = record.result
    if result is None or result.outcome not in (Outcome.OK, Outcome.STOPPED, Outcome.OOM, Outcome.HOST_OOM):
        return None
    speed = result.tokens_per_second
    return speed if speed is not None and 0 < speed < float("inf") else None


def _of_study(one: Similar, target: Profile) -> Iterator[PriorObservation]:
    for record in one.records:
        speed = speed_of(record)
        if speed is None or record.result is None:
            continue
        stopped = record.result.outcome is Outcome.STOPPED
        yield PriorObservation(
            model=one.profile.model,
            seq_len=one.profile.seq_len,
            point=record.point,
            tokens_per_second=speed,
            gpu_name=one.profile.gpu_name,
            processes=one.profile.gpus,
            is_here=one.profile.gpu_name == target.gpu_name,
            weight=one.trust * (STOPPED_WEIGHT if stopped else 1.0),
            rates=one.profile.rates,
        )
