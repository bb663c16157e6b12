"""When nothing fits: what the smallest point needs, measured without the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.tuning.session import Session
from autotune.tuning.smallest import smallest_point
from autotune.tuning.stages import Stage
from trials.wire import Outcome, Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Study

NOTE = "shortfall"


@dataclass(frozen=True)
class Shortfall:
    """The smallest point of a space that does not fit.

    Attributes:
        point: the configuration.
        result: its run without a limit.
    """

    point: Point
    result: TrialResult

    @property
    def needed_bytes(self) -> int | None:
        """Device memory it needs; None where it did not run without a limit either."""
        if self.result.outcome not in (Outcome.OK, Outcome.STOPPED):
            return None
        result = self.result
        return (
            result.required_device_bytes if result.required_device_bytes is not None else result.device_bytes
        )


def known_shortfall(study: Study) -> Shortfall | None:
    """What an earlier call measured; None where there was none."""
    known: Any = study.note(NOTE)
    if known is None:
        return None
    return Shortfall(Point.model_validate(known["point"]), TrialResult.model_validate(known["result"]))


def measure_shortfall(session: Session) -> Shortfall:
    """Measure the smallest point of each method without the limit, and keep the one that needs least.

    Raises:
        KeyboardInterrupt: the user stopped it.
    """
    session.observer.say("nothing fits: measuring what the smallest configuration needs without the limit")
    measured = [_measure(session, stage) for stage in session.task.stages]
    smallest = min(measured, key=lambda one: math.inf if one.needed_bytes is None else one.needed_bytes)
    if smallest.needed_bytes is not None:
        note = {
            "point": smallest.point.model_dump(mode="json"),
            "result": smallest.result.model_dump(mode="json"),
        }
        with session.interrupts.held():
            session.study.set_note(NOTE, note)
    return smallest


def _measure(session: Session, stage: Stage) -> Shortfall:
    point = smallest_point(stage.points, session.task.device)
    spec = session.spec(f"smallest-{stage.method}", point, limited=False)
    return Shortfall(point, session.run(spec, session.task.request.trial_timeout_seconds))
