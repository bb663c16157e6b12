"""What the model says of measurements it has never seen, and how measurements correct it."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import BUDGETS_GIB, GIB, grid, unseen_prior

from autotune.throughput import Belief, Observation, Worked
from trials.wire import Point


def belief_of(observed: list[Point], noise: float = 0.05) -> Belief:
    measured = grid().measured
    observations = [Observation(point, measured[point], noise) for point in observed]
    return Belief(Worked(grid().training, list(measured)), observations, unseen_prior())


def lora(micro_batch: int, accumulation: int, share: float) -> Point:
    return Point(
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
        checkpoint_fraction=share,
        lora_rank=16,
    )


def errors(belief: Belief) -> np.ndarray:
    measured = grid().measured
    return np.log([measured[point] for point in belief.points]) - belief.mean


def test_the_best_of_a_grid_never_seen_is_ranked_first_in_seven_of_eight_budgets() -> None:
    belief, measured = belief_of([]), grid().measured
    ranks = []
    for budget in BUDGETS_GIB:
        rows = [
            row
            for row, point in enumerate(belief.points)
            if (grid().rows[point].required_device_bytes or 0) <= budget * GIB
        ]
        best = max(rows, key=lambda row: measured[belief.points[row]])
        ranks.append(1 + sum(belief.mean[row] > belief.mean[best] for row in rows))
    assert ranks.count(1) >= 7 and max(ranks) <= 2, ranks


def test_throughput_never_seen_is_off_by_an_eighth_in_the_median_and_known_to_be() -> None:
    belief = belief_of([])
    off = errors(belief)
    assert np.median(np.abs(off)) < 0.15
    assert (np.abs(off) < 2 * belief.deviation).mean() > 0.9


def test_a_few_measurements_halve_the_error() -> None:
    points = list(grid().measured)
    random = np.random.default_rng(0)
    off, within = [], []
    for _ in range(10):
        chosen = random.choice(len(points), 4, replace=False)
        belief = belief_of([points[row] for row in chosen])
        others = np.setdiff1d(np.arange(len(points)), chosen)
        off.append(np.median(np.abs(errors(belief)[others])))
        # The recorded throughput itself repeats to about 5 %.
        spread = np.hypot(belief.deviation[others], 0.05)
        within.append((np.abs(errors(belief)[others]) < 2 * spread).mean())
    assert np.mean(off) < 0.07
    assert np.mean(within) > 0.85


def test_a_measured_point_is_believed_and_its_like_more_than_others() -> None:
    points = list(grid().measured)
    here = points.index(lora(8, 4, 0.5))
    before = belief_of([])
    told = float(np.exp(before.mean[here])) * 1.3
    after = Belief(Worked(grid().training, points), [Observation(points[here], told, 0.02)], unseen_prior())
    moved = after.mean - before.mean
    assert moved[here] == pytest.approx(np.log(1.3), rel=0.15)
    assert after.deviation[here] < 0.3 * before.deviation[here]
    assert (after.deviation <= before.deviation + 1e-9).all()
    neighbour, stranger = points.index(lora(6, 5, 0.5)), points.index(lora(1, 32, 0.0))
    assert moved[neighbour] > moved[stranger] > 0


def test_an_observation_twice_counts_more_than_once_and_order_does_not_matter() -> None:
    points = list(grid().measured)[:6]
    once, twice = belief_of(points), belief_of([*points, *points])
    assert twice.deviation.mean() < once.deviation.mean()
    assert belief_of(points[::-1]).mean == pytest.approx(once.mean, abs=1e-6)


def test_the_joint_distribution_has_the_marginal_ones_on_its_diagonal() -> None:
    belief = belief_of(list(grid().measured)[:5])
    rows = np.arange(10, 20)
    covariance = belief.covariance(rows)
    assert np.sqrt(np.diag(covariance)) == pytest.approx(belief.deviation[rows], rel=1e-6)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_a_machine_unlike_all_others_is_learned_and_believed_less() -> None:
    """All speeds in turn doubled and halved: the physics cannot be right, and says so."""
    points = list(grid().measured)[::3]
    measured = grid().measured
    odd = [Observation(p, measured[p] * (2.0 if row % 2 else 0.5)) for row, p in enumerate(points)]
    space = Worked(grid().training, list(measured))
    strange, usual = Belief(space, odd, unseen_prior()), belief_of(points, 0.02)
    assert strange.deviation.mean() > 2 * usual.deviation.mean()
