"""The default sampler, in a plain Optuna study of anyone's and as a proposer."""

from __future__ import annotations

import optuna
import pytest
from recorded_space import GIB, grid, speed_of

from autotune.errors import UsageError
from autotune.samplers import PhysicsSampler
from autotune.throughput.coefficients import Prior
from trials.wire import Point

POINTS = [point for point, row in grid().rows.items() if (row.required_device_bytes or 0) <= 24 * GIB]


def sampler(points: list[Point] = POINTS) -> PhysicsSampler:
    return PhysicsSampler(grid().training, points)


def study_of(sampler: PhysicsSampler, direction: str = "maximize") -> optuna.Study:
    return optuna.create_study(direction=direction, sampler=sampler)


def test_a_plain_study_is_at_the_top_of_the_recorded_grid_within_four_trials() -> None:
    one = sampler()
    study = study_of(one)
    study.optimize(lambda trial: speed_of(one.suggest(trial)), n_trials=4)
    assert study.best_value == max(map(speed_of, POINTS))


def test_every_point_is_tried_once_before_one_is_repeated() -> None:
    few = POINTS[:6]
    one = sampler(few)
    study = study_of(one)
    study.optimize(lambda trial: speed_of(one.suggest(trial)), n_trials=8)
    tried = [one.point_of(trial.params) for trial in study.trials]
    assert sorted(map(repr, tried[:6])) == sorted(map(repr, few))
    assert set(tried[6:]) == {max(few, key=speed_of)}


def test_where_memory_ends_is_learned_from_violated_constraints() -> None:
    """24 GiB are the limit and nobody tells: most of the grid, and all of its fastest part, does not fit."""
    everything = list(grid().measured)
    one = sampler(everything)
    study = study_of(one)

    def objective(trial: optuna.Trial) -> float:
        point = one.suggest(trial)
        short = (grid().rows[point].required_device_bytes or 0) / (24 * GIB) - 1
        trial.set_constraint("memory", short)
        if short > 0:
            raise optuna.TrialPruned
        return speed_of(point)

    study.optimize(objective, n_trials=12)
    assert study.best_value == max(map(speed_of, POINTS))
    pruned = [one.point_of(trial.params) for trial in study.trials if trial.constraints["memory"] > 0]
    # The first, of which nothing was known, needed 2.4 times as much; of the later ones few come near that.
    needs = [(grid().rows[point].required_device_bytes or 0) / (24 * GIB) for point in pruned]
    assert needs[0] > 2 and sum(need > 1.5 for need in needs[1:]) <= 1


def test_what_a_pruned_trial_reported_last_is_learned() -> None:
    one = sampler()
    study = study_of(one)
    trial = study.ask()
    point = one.suggest(trial)
    trial.report(speed_of(point) / 2, step=1)
    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    [seen] = [one._seen(trial) for trial in study.trials]
    assert seen.fitted and seen.tokens_per_second == speed_of(point) / 2


def test_trials_that_run_at_the_same_time_are_different_points() -> None:
    one = sampler()
    study = study_of(one)
    assert len({one.suggest(study.ask()) for _ in range(5)}) == 5


def test_a_study_that_asks_for_something_else_is_refused_or_served_at_random() -> None:
    one = sampler()
    with pytest.raises(UsageError, match="maximises"):
        one.suggest(study_of(one, "minimize").ask())
    with pytest.raises(UsageError, match="without points"):
        sampler([])
    trial = study_of(one).ask()
    assert 0.0 <= trial.suggest_float("learning_rate", 0.0, 1.0) <= 1.0
    assert trial.suggest_categorical("lora_rank", [8, 16]) == 16
    assert isinstance(one.suggest(trial), Point)


def test_a_prior_of_one_s_own_is_used() -> None:
    """Believing that launching costs nothing, the smallest micro batch without recomputation looks best."""
    from autotune.throughput.coefficients import COEFFICIENTS, hand_prior

    plain = hand_prior()
    mean = plain.mean.copy()
    for index, one in enumerate(COEFFICIENTS):
        if one.part == "host":
            mean[index] = -10.0
    free = PhysicsSampler(grid().training, POINTS, prior=Prior(mean, plain.spread))
    chosen = free.suggest(study_of(free).ask())
    assert chosen.checkpoint_fraction == 0.0
