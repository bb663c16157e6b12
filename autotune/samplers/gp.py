"""The Gaussian process of Optuna, restricted to the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from optuna.samplers import GPSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.samplers.encoding import Encoding
from autotune.samplers.seeding import seed_of_turn
from autotune.samplers.shadow import new_shadow
from autotune.samplers.startup import startup_point
from autotune.study.record import Record
from autotune.study.states import Verdict, verdict
from trials.wire import Point

# Measured points before the process is fitted.
STARTUP_TRIALS = 6


class GpProposer:
    """Takes the candidate whose expected improvement, weighed by the chance that it fits, is largest."""

    def __init__(self, space_points: Sequence[Point], seed: int) -> None:
        """Remembers the space.

        Args:
            space_points: all points of the space.
            seed: of all random choices.
        """
        self._space_points = tuple(space_points)
        self._seed = seed

    def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
        """See `Proposer.propose`.

        Optuna's process reads only trials that are COMPLETE or RUNNING. So in the study in memory a point
        that did not fit is COMPLETE too, with a violated constraint and the mean speed: it teaches where
        memory ends and nothing about speed.
        """
        told = [(record, verdict(record.result)) for record in history if record.result]
        values = [said.value for _, said in told if said.value is not None]
        if len(values) < STARTUP_TRIALS:
            return startup_point(self._space_points, self._seed, len(history), candidates)
        encoding = Encoding([*self._space_points, *candidates, *(record.point for record in history)])
        if not encoding.knobs:
            return candidates[0]
        study = new_shadow(_CandidateSampler(encoding, candidates, seed_of_turn(self._seed, len(history))))
        for record, said in told:
            if said.state != TrialState.FAIL:
                study.add_trial(
                    _as_complete(encoding.parameters(record.point), encoding, said, fmean(values))
                )
        for record in history:
            if record.result is None:
                study.add_trial(_as_running(encoding.parameters(record.point), encoding))
        parameters = study.ask(encoding.distributions).params
        by_code = {encoding.encode(point): point for point in candidates}
        return by_code[tuple(parameters[knob.name] for knob in encoding.knobs)]


def _as_complete(
    parameters: dict[str, int], encoding: Encoding, said: Verdict, mean_value: float
) -> FrozenTrial:
    fits = all(violation <= 0 for violation in said.constraints.values())
    return create_trial(
        value=mean_value if said.value is None else said.value,
        params=parameters,
        distributions=encoding.distributions,
        constraints={"fits": -1.0 if fits else 1.0},
    )


def _as_running(parameters: dict[str, int], encoding: Encoding) -> FrozenTrial:
    return create_trial(state=TrialState.RUNNING, params=parameters, distributions=encoding.distributions)


class _CandidateSampler(GPSampler):  # type: ignore[misc]
    """Optuna's sampler, looking for the best acquisition among the candidates instead of in the whole box.

    `_optimize_acqf` is the method that Optuna's source names for this purpose.
    """

    def __init__(self, encoding: Encoding, candidates: Sequence[Point], seed: int) -> None:
        super().__init__(seed=seed, n_startup_trials=0, warn_independent_sampling=False)
        self._candidates = [encoding.parameters(point) for point in candidates]

    def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:
        positions = acqf.search_space.get_normalized_params(self._candidates, self._candidates)
        return positions[acqf.eval_acqf_no_grad(positions).argmax()]
