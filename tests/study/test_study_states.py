"""What Optuna is told of each outcome."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotune.study.states import verdict
from trials.wire import Outcome, Phase, TrialResult


def result(outcome: Outcome, **fields: Any) -> TrialResult:
    return TrialResult(trial_id="0", outcome=outcome, phase=Phase.LATER_STEP, **fields)


@pytest.mark.parametrize(
    ("outcome", "state", "violated"),
    [
        (Outcome.OK, TrialState.COMPLETE, None),
        (Outcome.STOPPED, TrialState.COMPLETE, None),
        (Outcome.OOM, TrialState.PRUNED, "device_memory"),
        (Outcome.HOST_OOM, TrialState.PRUNED, "host_memory"),
        (Outcome.TIMEOUT, TrialState.PRUNED, "time"),
        (Outcome.CRASH, TrialState.FAIL, None),
        (Outcome.NAN, TrialState.FAIL, None),
        (Outcome.INVALID, TrialState.FAIL, None),
    ],
)
def test_each_outcome_has_its_state_and_constraint(
    outcome: Outcome, state: TrialState, violated: str | None
) -> None:
    told = verdict(result(outcome, tokens_per_second=100.0), budget_bytes=1000)
    assert told.state == state
    assert told.value == (100.0 if state == TrialState.COMPLETE else None)
    assert [name for name, value in told.constraints.items() if value > 0] == ([violated] if violated else [])


def test_every_outcome_of_the_wire_is_covered() -> None:
    for outcome in Outcome:
        assert verdict(result(outcome)).state in (TrialState.PRUNED, TrialState.FAIL)


def test_the_violation_is_the_share_of_the_budget_that_was_short() -> None:
    def violation(short: int | None, budget: int | None) -> float:
        return verdict(result(Outcome.OOM, oom_short_bytes=short), budget).constraints["device_memory"]

    assert violation(250, 1000) == 0.25
    assert violation(5000, 1000) == 1.0
    assert violation(None, 1000) == 1.0
    assert violation(0, 1000) > 0
    assert violation(2**29, None) == 0.5


def test_optuna_counts_an_out_of_memory_as_infeasible_and_learns_from_it() -> None:
    """PRUNED trials reach TPE and FAIL ones do not: this is what the verdict relies on."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=1))
    distributions = {"x": optuna.distributions.CategoricalDistribution(["large", "small"])}
    for outcome in (Outcome.OOM, Outcome.CRASH):
        told = verdict(result(outcome))
        study.add_trial(
            optuna.trial.create_trial(
                state=told.state,
                params={"x": "large"},
                distributions=distributions,
                constraints=dict(told.constraints),
            )
        )
    read = study._get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED), use_cache=False)
    assert [trial.number for trial in read] == [0]
    assert max(read[0].constraints.values()) > 0
