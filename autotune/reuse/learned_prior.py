"""What other studies' speeds say of the coefficients of the model of speed.

The coefficients are fitted to what similar studies measured, each study as the training it was, beginning
from the shipped prior. How far that holds for another training is the trust: of what a coefficient varies
between trainings, the share that is not trusted stays as doubt. A study whose speeds no coefficients explain
teaches nothing: whatever made them, it was not what the model of speed knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from autotune.errors import UsageError
from autotune.reuse.observations import PriorObservation
from autotune.throughput import Rates, Training, Worked, probed_rates, rates_of
from autotune.throughput.belief import LEAST_NOISE, REST
from autotune.throughput.coefficients import Prior, Vector, shipped_prior

# The points of one study are alike: however many there are, they count as so many.
STUDY_COUNTS_AS = 10.0
# Of recorded studies on H200s half of the points are within 2 to 8 % of what their own coefficients say.
UNEXPLAINED = 2.5
# So improbable is the order of so many speeds, were they at least not the reverse of what is expected.
REVERSED = 0.05
LEAST_ORDERED = 4
ORDERED = 2.0
_ITERATIONS = 40
_LARGEST_STEP = 0.3


@dataclass(frozen=True)
class _Source:
    """One training of the observations."""

    worked: Worked
    log_seconds: np.ndarray
    weights: np.ndarray


def learned_prior(
    observations: Sequence[PriorObservation], target: Training, base: Prior | None = None
) -> Prior | None:
    """The prior of the coefficients after what similar studies measured.

    Args:
        observations: theirs.
        target: what is about to be tuned, on this machine.
        base: the prior without them; None: the shipped one.

    Returns:
        None where there is nothing to learn from.
    """
    device = target.rates.device
    base = base or shipped_prior(device)
    sources = [source for source in _sources(observations, target) if _is_explained(source, base, device)]
    if not sources:
        return None
    found, curve = _fitted(sources, base, device)
    trust = min(1.0, max(observation.weight for observation in observations))
    variance = np.diag(np.linalg.inv(curve)) + (1.0 - trust) * base.spread**2
    return Prior(found, np.minimum(base.spread, np.sqrt(variance)))


def are_explained(
    observations: Sequence[PriorObservation], target: Training, base: Prior | None = None
) -> bool:
    """Whether there are coefficients that say these speeds, of one study, however little it is trusted.

    Args:
        observations: the study's.
        target: what is about to be tuned, on this machine.
        base: the prior without other studies; None: the shipped one.

    Returns:
        True also where nobody can say: of a GPU that is in no table.
    """
    device = target.rates.device
    base = base or shipped_prior(device)
    return all(_is_explained(source, base, device) for source in _sources(observations, target))


def _fitted(sources: Sequence[_Source], base: Prior, device: str) -> tuple[np.ndarray, np.ndarray]:
    """The most probable coefficients of all sources together, and how sharply they are known (precision)."""
    noise = (REST[device] ** 2 + LEAST_NOISE**2) ** 0.5
    seconds = np.concatenate([source.log_seconds for source in sources])
    counts = np.concatenate([source.weights for source in sources]) / noise**2
    precision = np.diag(base.spread**-2.0)
    found = base.mean.copy()
    for _ in range(_ITERATIONS):
        times = [source.worked.times(found) for source in sources]
        rest = seconds - np.concatenate([one.log_seconds for one in times])
        slopes = np.concatenate([one.slopes for one in times])
        curve = slopes.T @ (slopes * counts[:, None]) + precision
        step = np.linalg.solve(curve, slopes.T @ (counts * rest) - precision @ (found - base.mean))
        found = found + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
    return found, curve


def _is_explained(source: _Source, base: Prior, device: str) -> bool:
    """Whether coefficients say a source's speeds, and the order of these is not the reverse of theirs."""
    tokens = np.log(source.worked.work.tokens)
    measured, expected = source.log_seconds - tokens, source.worked.times(base.mean).log_seconds - tokens
    # What lies closer together than the model of speed can tell has no order.
    told = min(np.ptp(measured), np.ptp(expected)) > ORDERED * REST[device]
    if told and _are_reversed(measured, expected):
        return False
    alone = replace(source, weights=np.full(len(source.log_seconds), 1.0))
    found, _ = _fitted([alone], base, device)
    errors = np.abs(source.log_seconds - source.worked.times(found).log_seconds)
    return float(np.median(errors)) <= UNEXPLAINED * REST[device]


def _are_reversed(measured: Vector, expected: Vector) -> bool:
    """Whether the one order is the other's reverse, more than chance makes it (Spearman, one-sided)."""
    count = len(measured)
    if count < LEAST_ORDERED:
        return False
    # Equal figures have equal ranks, or their order in the list would count.
    one, other = (np.unique(values, return_inverse=True)[1] for values in (measured, expected))
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return False
    like = float(np.corrcoef(one, other).item(1))
    surprise = like * ((count - 2) / max(1e-12, 1 - like**2)) ** 0.5
    return float(stdtr(count - 2, surprise)) < REVERSED


def _sources(observations: Sequence[PriorObservation], target: Training) -> list[_Source]:
    """The observations by training; those of a GPU that is in no table are left out."""
    groups: dict[tuple[object, ...], list[PriorObservation]] = {}
    for one in observations:
        machine = (one.gpu_name, *sorted(one.rates.items()))
        key = (one.model.model_dump_json(), one.seq_len, one.processes, machine)
        groups.setdefault(key, []).append(one)
    found = []
    for members in groups.values():
        first = members[0]
        rates = _rates(first, target)
        if rates is None:
            continue
        training = replace(
            target,
            model=first.model,
            seq_len=first.seq_len,
            processes=first.processes,
            rates=rates,
            total_parameters=None,
        )
        worked = Worked(training, [one.point for one in members])
        weights = np.array([one.weight for one in members])
        weights *= min(1.0, STUDY_COUNTS_AS / len(members))
        speeds = np.log([one.tokens_per_second for one in members])
        found.append(_Source(worked, np.log(worked.work.tokens) - speeds, weights))
    return found


def _rates(one: PriorObservation, target: Training) -> Rates | None:
    """The rates of an observation's machine: measured there, else this one's or the table's."""
    if one.is_here or one.gpu_name is None:
        return probed_rates(one.rates, target.rates)
    try:
        return probed_rates(one.rates, rates_of(one.gpu_name))
    except UsageError:
        return None
