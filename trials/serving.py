"""A trial's process: it runs its specification, and then whatever else its engine can measure."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING

from trials.live_engine import why_not_kept
from trials.trial import Trial
from trials.wire import Outcome, TrialResult, TrialSpec

if TYPE_CHECKING:
    from trials.children import Channel
    from trials.live_engine import Started


def serve_trials(channel: Channel, spec: TrialSpec, began: float, *, keep: bool) -> None:
    """Run trials until the engine is no good for another one, or nobody asks.

    Args:
        channel: to the pre-warmed process.
        spec: the first trial, which starts the engine.
        began: monotonic time at which that trial began.
        keep: whether there may be further ones.
    """
    started: Started | None = None
    while True:
        trial = Trial(spec, channel.rank, channel.report, began, started)
        result = trial.run()
        started = trial.started if keep and _may_go_on(trial, result, spec) else None
        ready = started is not None and _is_put_back(started)
        channel.done(result.model_dump(mode="json"), ready=ready)
        if not ready:
            return
        # Until then nothing is held but the engine, and no frame of a failure.
        del trial, result
        request = channel.receive()
        if request is None:
            return
        began = time.monotonic()
        spec = TrialSpec.model_validate(request["spec"])
        channel.log_to(spec.log_path)


def _may_go_on(trial: Trial, result: TrialResult, spec: TrialSpec) -> bool:
    """Whether another point may be measured on a trial's engine."""
    if why_not_kept(spec.point) is not None or not trial.engine_survives:
        return False
    # One process that is out of memory has left the others in a collective.
    return result.outcome is not Outcome.OOM or spec.processes == 1


def _is_put_back(started: Started) -> bool:
    try:
        return started.engine.put_back()
    except Exception:
        # Of no interest to the trial, which is over: the next one starts a process of its own.
        traceback.print_exc()
        return False
