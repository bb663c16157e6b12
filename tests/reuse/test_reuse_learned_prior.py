"""Speeds of other studies teach the model of speed its coefficients, as far as they are trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reuse_samples import SPACE

from autotune.models import resolve_model
from autotune.reuse import PriorObservation
from autotune.reuse.learned_prior import learned_prior
from autotune.throughput import Belief, Training, Worked
from autotune.throughput.coefficients import INDEX, Prior, shipped_prior

SMALL = Training(resolve_model("qwen2.5-0.5b"), 1024)
LARGE = Training(resolve_model("qwen2.5-1.5b"), 1024)
BASE = shipped_prior("cuda")
# A machine whose host launches half as fast and whose matrix products take 1.4 times as long as was thought.
TRUE = BASE.mean.copy()
TRUE[INDEX["launch"]] += np.log(2.0)
TRUE[INDEX["adapters"]] += np.log(2.0)
TRUE[INDEX["matmul"]] += np.log(1.4)


def true_speeds(training: Training) -> np.ndarray:
    worked = Worked(training, SPACE)
    return np.asarray(worked.work.tokens / np.exp(worked.times(TRUE).log_seconds))


def observed(weight: float, gpu: str = "NVIDIA H200", *, is_here: bool = True) -> list[PriorObservation]:
    return [
        PriorObservation(SMALL.model, 1024, point, float(speed), gpu, 1, is_here, weight)
        for point, speed in list(zip(SPACE, true_speeds(SMALL), strict=True))[::3]
    ]


def error(prior: Prior | None) -> float:
    """Of the speeds of the other model, the root of the mean square of the logarithm."""
    belief = Belief(Worked(LARGE, SPACE), (), prior or BASE)
    return float(np.sqrt(np.mean((belief.mean - np.log(true_speeds(LARGE))) ** 2)))


def test_speeds_of_another_model_are_foretold_far_better() -> None:
    assert error(None) > 0.25
    assert error(learned_prior(observed(1.0), LARGE)) < 0.25 * error(None)


def test_less_trust_teaches_less_and_leaves_more_doubt() -> None:
    errors, doubts = [], []
    for weight in (1.0, 0.5, 0.05, 0.001):
        found = learned_prior(observed(weight), LARGE)
        assert found is not None
        errors.append(error(found))
        doubts.append(float(found.spread.sum()))
        assert (found.spread <= BASE.spread + 1e-12).all()
    assert errors == sorted(errors) and doubts == sorted(doubts)
    assert errors[-1] == pytest.approx(error(None), rel=0.2)
    assert doubts[-1] == pytest.approx(float(BASE.spread.sum()), rel=0.01)


def test_what_was_not_seen_stays_as_it_was() -> None:
    found = learned_prior(observed(1.0), LARGE)
    assert found is not None
    for name in ("nf4", "cpu_adam", "nvme", "communication"):
        assert found.mean[INDEX[name]] == pytest.approx(BASE.mean[INDEX[name]])
        assert found.spread[INDEX[name]] == pytest.approx(BASE.spread[INDEX[name]])


def test_another_gpu_counts_at_its_own_rates_and_an_unknown_one_not_at_all() -> None:
    assert learned_prior([], LARGE) is None
    assert learned_prior(observed(1.0, "a card of the future", is_here=False), LARGE) is None
    assert learned_prior(observed(1.0, "NVIDIA H100 80GB HBM3", is_here=False), LARGE) is not None


def test_another_base_is_begun_from() -> None:
    sure = Prior(BASE.mean + 0.1, np.full_like(BASE.spread, 1e-6))
    found = learned_prior(observed(1.0), LARGE, sure)
    assert found is not None
    assert found.mean == pytest.approx(sure.mean, abs=1e-3)


def test_speeds_that_no_machine_has_teach_nothing() -> None:
    speeds = [one.tokens_per_second for one in observed(1.0)]
    turned = [
        replace(one, tokens_per_second=max(speeds) ** 2 / one.tokens_per_second) for one in observed(1.0)
    ]
    assert learned_prior(turned, LARGE) is None
    # Beside a study that makes sense they change nothing.
    other = [replace(one, seq_len=2048) for one in turned]
    both, alone = learned_prior([*observed(1.0), *other], LARGE), learned_prior(observed(1.0), LARGE)
    assert both is not None and alone is not None
    assert both.mean == pytest.approx(alone.mean)


def test_a_study_of_another_host_is_read_with_that_host_s_rates() -> None:
    # The same machine but for a host that launches half as fast: nothing of that is a coefficient's doing.
    slow = replace(SMALL.rates, launch_seconds=2 * SMALL.rates.launch_seconds)
    worked = Worked(replace(SMALL, rates=slow), SPACE)
    speeds = worked.work.tokens / np.exp(worked.times(BASE.mean).log_seconds)
    told = [
        PriorObservation(SMALL.model, 1024, point, float(speed), "NVIDIA H200", 1, True, 1.0, slow.as_plain())
        for point, speed in list(zip(SPACE, speeds, strict=True))[::3]
    ]
    with_rates, without = (
        learned_prior(one, LARGE) for one in (told, [replace(one, rates={}) for one in told])
    )
    assert with_rates is not None and without is not None
    assert np.abs(with_rates.mean - BASE.mean).max() < 0.02 < 0.1 < np.abs(without.mean - BASE.mean).max()
