"""What similar studies teach the model of speed, and whether that leads astray here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from autotune.reuse import Profile, Similar, prior_observations
from trials.wire import Point

if TYPE_CHECKING:
    from autotune.throughput import Training
    from autotune.throughput.belief import Observation
    from autotune.throughput.coefficients import Prior

# From so many trials on they are compared with what the studies lead to expect; what is this much worse than
# without them, as a logarithm, is dropped.
LEAST_COMPARED = 2
CLEARLY_WORSE = 0.08
# A speed of the same training from another day and another machine of the kind repeats no better than this.
ELSEWHERE_NOISE = 0.1


@dataclass(frozen=True)
class Taught:
    """What other studies teach the model of speed.

    Attributes:
        prior: of its coefficients; None: the shipped one.
        known: speeds of this very training.
    """

    prior: Prior | None = None
    known: tuple[Observation, ...] = ()


NOTHING = Taught()


def lessons(
    similar: Sequence[Similar], left: float, target: Profile, training: Training, base: Prior | None
) -> Taught:
    """What the studies teach: those of the same training their speeds, the others the coefficients.

    Args:
        similar: the studies.
        left: the share of their trust that is left; above 0.
        target: what is tuned.
        training: the same on this machine, for the model of speed.
        base: prior without the studies; None: the shipped one.

    Returns:
        `NOTHING` where there is nothing to learn.
    """
    from autotune.reuse.learned_prior import learned_prior

    here = [one for one in similar if is_of_this_training(one, target)]
    others = [replace(one, trust=one.trust * left) for one in similar if one not in here]
    prior = learned_prior(prior_observations(others, target), training, base)
    known = tuple(known for one in here for known in _known(one, left, training, base))
    return Taught(prior, known) if prior is not None or known else NOTHING


def explained(one: Similar, target: Profile, training: Training, base: Prior | None) -> bool:
    """Whether a study's speeds are such as the model of speed knows; what others measured says nothing here.

    Args:
        one: the study.
        target: what is tuned.
        training: the same on this machine.
        base: prior without other studies; None: the shipped one.
    """
    from autotune.reuse.learned_prior import are_explained

    return are_explained(prior_observations([replace(one, trust=1.0)], target), training, base)


def is_of_this_training(one: Similar, target: Profile) -> bool:
    """Whether a point's speed there is one here: everything is the same but what may be proposed."""

    def facts(profile: Profile) -> tuple[object, ...]:
        machine = (profile.device, profile.gpu_name, profile.gpus, profile.host_cpus)
        return profile.model_digest, profile.seq_len, profile.lora_targets, machine

    return facts(one.profile) == facts(target)


def misled(taught: Taught, measured: Mapping[Point, float], training: Training, base: Prior | None) -> str:
    """How far what was learned is off the speeds measured here, if clearly worse than without it.

    Args:
        taught: what was learned.
        measured: tokens per second of this study's trials.
        training: what is tuned, on this machine.
        base: prior without the studies; None: the shipped one.

    Returns:
        In words; empty where it is no worse, or too little is measured to say.
    """
    from autotune.throughput import Belief, Worked

    if len(measured) < LEAST_COMPARED:
        return ""
    work = Worked(training, list(measured))

    def off(known: Sequence[Observation], prior: Prior | None) -> float:
        means = Belief(work, known, prior).mean
        errors = (log(measured[point]) - mean for point, mean in zip(work.points, means, strict=True))
        return sqrt(fmean(error**2 for error in errors))

    learned, without = off(taught.known, taught.prior or base), off((), base)
    if learned <= without + CLEARLY_WORSE:
        return ""
    off_by = f"{exp(learned) - 1:.0%} off what it leads to expect"
    return f"speeds here are {off_by}, and {exp(without) - 1:.0%} off what is expected without it"


def _known(similar: Similar, left: float, training: Training, base: Prior | None) -> Iterator[Observation]:
    """What a study of the same training measured, less sure the less trust is left.

    Where it knows how fast its machine was, its speeds are those that this machine would have had.
    """
    from autotune.throughput import Belief, Worked, probed_rates
    from autotune.throughput.belief import Observation
    from autotune.throughput.seen import observations_of, seen_of

    found = observations_of(seen_of(record.point, record.result) for record in similar.records)
    points = list(dict.fromkeys(one.point for one in found))
    there = replace(training, rates=probed_rates(similar.profile.rates, training.rates))
    here_mean, there_mean = (Belief(Worked(one, points), (), base).mean for one in (training, there))
    moved = dict(zip(points, here_mean - there_mean, strict=True))
    for one in found:
        noise = sqrt((one.noise**2 + ELSEWHERE_NOISE**2) / left)
        yield Observation(one.point, one.tokens_per_second * exp(moved[one.point]), noise)
