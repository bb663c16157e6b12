"""The default sampler for anyone's Optuna study whose parameters are the fields of a `Point`.

from autotune.samplers import PhysicsSampler
from autotune.throughput import Training, rates_of

training = Training(resolve_model("llama2-7b"), seq_len=1024, rates=rates_of("RTX 4090"))
sampler = PhysicsSampler(training, points)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(lambda trial: tokens_per_second_of(sampler.suggest(trial)), n_trials=20)
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from autotune.errors import UsageError
from autotune.space.fields import point_fields
from autotune.throughput.advisor import Advisor
from autotune.throughput.coefficients import Prior
from autotune.throughput.seen import STOPPED_NOISE, Seen, is_speed
from autotune.throughput.work import Training
from trials.wire import Point


class PhysicsSampler(BaseSampler):  # type: ignore[misc]
    """Samples the points of an enumerated space by expected gain per second of measuring.

    The objective is tokens per second, to be maximised. A trial that runs out of memory ends as PRUNED with
    a violated constraint (`trial.set_constraint`), which teaches where memory ends; a PRUNED one that does
    fit teaches its last reported value. Each point is proposed once; after that the fastest is repeated.

    Args:
        training: what is trained, on what.
        points: the space, at least one point.
        prior: of the coefficients of speed; None: the shipped one.
        seed: where `suggest` is not used and a parameter is asked for that is no field of the points.
    """

    def __init__(
        self, training: Training, points: Sequence[Point], *, prior: Prior | None = None, seed: int = 0
    ) -> None:
        self._points = tuple(dict.fromkeys(points))
        if not self._points:
            raise UsageError("a space without points cannot be sampled", "give at least one Point")
        self._advisor = Advisor(training, self._points, prior=prior)
        self._random = np.random.default_rng(seed)
        fields = point_fields()
        values = {
            name: sorted({getattr(point, name) for point in self._points}, key=fields[name].order)
            for name in fields
        }
        self.search_space: dict[str, CategoricalDistribution] = {
            name: CategoricalDistribution(choices) for name, choices in values.items() if len(choices) > 1
        }
        self._fixed = {name: choices[0] for name, choices in values.items() if len(choices) == 1}

    def suggest(self, trial: Trial) -> Point:
        """The trial's point: suggests every field that varies in the space."""
        chosen = {
            name: trial.suggest_categorical(name, distribution.choices)
            for name, distribution in self.search_space.items()
        }
        return self.point_of(chosen)

    def point_of(self, parameters: Mapping[str, Any]) -> Point:
        """The point of a trial's parameters."""
        known = {name: parameters[name] for name in self.search_space if name in parameters}
        return Point.model_validate({**self._fixed, **known})

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every field that varies."""
        return dict(self.search_space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The fields of the point to measure next.

        Raises:
            UsageError: the study does not maximise one value.
        """
        if study.directions != [StudyDirection.MAXIMIZE]:
            raise UsageError("PhysicsSampler maximises tokens per second", 'use direction="maximize"')
        if not search_space:
            return {}
        others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        seen = [self._seen(one) for one in others if set(self.search_space) <= set(one.params)]
        tried = {one.point for one in seen}
        left = [point for point in self._points if point not in tried]
        point = self._advisor.propose(seen, left) if left else self._fastest(seen)
        return {name: getattr(point, name) for name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that is no field of the points, or that all points share: any value."""
        if param_name in self._fixed:
            value = self._fixed[param_name]
            with contextlib.suppress(ValueError):
                if param_distribution._contains(param_distribution.to_internal_repr(value)):
                    return value
        from optuna.samplers import RandomSampler

        sampler = RandomSampler(seed=int(self._random.integers(2**31)))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def _seen(self, trial: FrozenTrial) -> Seen:
        point = self.point_of(trial.params)
        if not trial.state.is_finished():
            return Seen(point, running=True)
        if any(violation > 0 for violation in trial.constraints.values()):
            return Seen(point, fitted=False)
        if trial.state == TrialState.COMPLETE and is_speed(trial.value):
            return Seen(point, trial.value, fitted=True)
        last = trial.intermediate_values.get(trial.last_step) if trial.last_step is not None else None
        if trial.state == TrialState.PRUNED and is_speed(last):
            return Seen(point, last, STOPPED_NOISE, True)
        return Seen(point)

    def _fastest(self, seen: Sequence[Seen]) -> Point:
        return max(seen, key=lambda one: one.tokens_per_second or 0.0).point
