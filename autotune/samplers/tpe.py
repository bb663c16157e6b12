"""The tree-structured Parzen estimator of Optuna: good points are sought where good ones were found."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.samplers import TPESampler
from optuna.trial import TrialState

from autotune.samplers.encoding import Encoding
from autotune.samplers.seeding import seed_of_turn
from autotune.samplers.shadow import shadow_study, teaches
from autotune.samplers.startup import startup_point
from autotune.study.record import Record
from trials.wire import Point

# Spread points before the estimator is asked; with fewer there is nothing to estimate from.
STARTUP_TRIALS = 8
# Samples among which it takes the best. Optuna's 24 are few where most of a space is a product of ten knobs.
EI_CANDIDATES = 64
TRIES = 24


class TpeProposer:
    """Asks TPE, in a study in memory, until it names a candidate."""

    def __init__(self, space_points: Sequence[Point], seed: int) -> None:
        """Remembers the space.

        Args:
            space_points: all points of the space; they fix what the estimator considers possible.
            seed: of all random choices.
        """
        self._space_points = tuple(space_points)
        self._seed = seed

    def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
        """See `Proposer.propose`.

        What TPE names beside the candidates is either impossible or known to need too much memory: in the
        study in memory it is told as infeasible, so that the next proposal avoids it. A point that was
        measured is told nothing again. If no proposal is a candidate, the one nearest to the last is taken.
        """
        turn = len(history)
        if sum(map(teaches, history)) < STARTUP_TRIALS:
            return startup_point(self._space_points, self._seed, turn, candidates)
        tried = [record.point for record in history]
        encoding = Encoding([*self._space_points, *candidates, *tried])
        if not encoding.knobs:
            return candidates[0]
        by_code = {encoding.encode(point): point for point in candidates}
        known = {encoding.encode(point) for point in tried}
        sampler = TPESampler(
            n_startup_trials=0, n_ei_candidates=EI_CANDIDATES, seed=seed_of_turn(self._seed, turn)
        )
        study = shadow_study(history, encoding, sampler)
        for _ in range(TRIES):
            trial = study.ask(encoding.distributions)
            code = tuple(trial.params[knob.name] for knob in encoding.knobs)
            if code in by_code:
                return by_code[code]
            if code in known:
                study.tell(trial, state=TrialState.FAIL)
            else:
                trial.set_constraint("candidate", 1.0)
                study.tell(trial, state=TrialState.PRUNED)
        return encoding.nearest(code, candidates)
