"""From what happened to a trial to what Optuna is told: the only module that knows both.

ok          COMPLETE, with tokens per second.
stopped     COMPLETE, with the tokens per second of its first timed steps: it fits, and its speed is known
            well enough to say that it is slow. As PRUNED every sampler would put it behind the slowest trial
            that ran to its end, and the Gaussian process, which reads only COMPLETE, would not see it at all.
oom         PRUNED, with the constraint `device_memory` violated. Never FAIL: samplers skip failed trials, so
            they would learn nothing of where memory ends.
host_oom    PRUNED, with the constraint `host_memory` violated.
timeout     PRUNED, with the constraint `time` violated: it was too slow to measure.
crash, nan, invalid
            FAIL: neither fast nor slow nor too large, there is nothing to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optuna.trial import TrialState

from trials.wire import Outcome, TrialResult

# By how much a constraint is violated where nobody knows: as much as the budget itself.
UNKNOWN_VIOLATION = 1.0
SMALLEST_VIOLATION = 1e-6
GIB = 2**30


@dataclass(frozen=True)
class Verdict:
    """What Optuna is told of a trial.

    Attributes:
        state: the state it is finished with.
        value: tokens per second, for COMPLETE alone.
        constraints: by name, violated where above 0.
    """

    state: TrialState
    value: float | None = None
    constraints: Mapping[str, float] = field(default_factory=dict)


def verdict(result: TrialResult, budget_bytes: int | None = None) -> Verdict:
    """What Optuna is told of a result.

    Args:
        result: what the trial reported.
        budget_bytes: device memory allowed, to which the bytes an out-of-memory was short are related;
            None: they are counted in GiB.
    """
    match result.outcome:
        case Outcome.OK | Outcome.STOPPED if result.tokens_per_second is not None:
            return Verdict(TrialState.COMPLETE, result.tokens_per_second, _constraints())
        case Outcome.STOPPED:
            return Verdict(TrialState.PRUNED, None, _constraints())
        case Outcome.OOM:
            return Verdict(
                TrialState.PRUNED, None, _constraints(device_memory=_shortage(result, budget_bytes))
            )
        case Outcome.HOST_OOM:
            return Verdict(TrialState.PRUNED, None, _constraints(host_memory=_shortage(result, budget_bytes)))
        case Outcome.TIMEOUT:
            return Verdict(TrialState.PRUNED, None, _constraints(time=UNKNOWN_VIOLATION))
        case _:
            return Verdict(TrialState.FAIL)


def _constraints(device_memory: float = 0.0, host_memory: float = 0.0, time: float = 0.0) -> dict[str, float]:
    # All of them every time: Optuna's Gaussian process insists on equally many for each trial.
    return {"device_memory": device_memory, "host_memory": host_memory, "time": time}


def _shortage(result: TrialResult, budget_bytes: int | None) -> float:
    if result.oom_short_bytes is None:
        return UNKNOWN_VIOLATION
    return min(UNKNOWN_VIOLATION, max(SMALLEST_VIOLATION, result.oom_short_bytes / (budget_bytes or GIB)))
