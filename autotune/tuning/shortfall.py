"""When nothing fits: what the smallest point needs, predicted or measured without the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.tuning.session import Session
from autotune.tuning.smallest import smallest_point
from autotune.tuning.stages import Stage
from trials.wire import Outcome, Point, TrialResult

if TYPE_CHECKING:
    from autotune.study import Study
    from autotune.tuning.foresight import Foresight

PREDICTED_NOTE = "predicted_shortfall"
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


@dataclass(frozen=True)
class PredictedShortfall:
    """What comes closest where no point is predicted to fit.

    Attributes:
        point: the configuration that lacks least.
        limit: the budget it breaks: device or host.
        needed_bytes: device memory it needs.
        host_bytes: host memory it needs.
        why: what it needs and what that is made of.
        other_methods: device memory that the gentler methods need which would fit, by method.
    """

    point: Point
    limit: str
    needed_bytes: int
    host_bytes: int
    why: str
    other_methods: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"point": self.point.model_dump(mode="json")}


def known_shortfall(study: Study) -> Shortfall | PredictedShortfall | None:
    """What an earlier call found; None where there was nothing."""
    known: Any = study.note(NOTE)
    if known is None:
        predicted: Any = study.note(PREDICTED_NOTE)
        if predicted is None:
            return None
        return PredictedShortfall(**{**predicted, "point": Point.model_validate(predicted["point"])})
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


def predict_shortfall(session: Session) -> PredictedShortfall | None:
    """What is missing where no point is predicted to fit; None where some point is, or is not predicted.

    Raises:
        KeyboardInterrupt: the user stopped it.
    """
    foresight = session.foresight
    points = [point for stage in session.task.stages for point in stage.points]
    if foresight is None or session.may_fit(points):
        return None
    from autotune.planning.advice import nearest, reason

    budgets = foresight.about.budgets
    closest = nearest(foresight.outlooks(points), budgets)
    assert closest.limit is not None, "what fits was handled above"
    found = PredictedShortfall(
        point=closest.point,
        limit=closest.limit,
        needed_bytes=closest.prediction.required_device_bytes,
        host_bytes=closest.prediction.host_peak_bytes,
        why=reason(closest, budgets),
        other_methods=_other_methods(session, foresight),
    )
    with session.interrupts.held():
        session.study.set_note(PREDICTED_NOTE, found.as_json())
    return found


def _other_methods(session: Session, foresight: Foresight) -> dict[str, int]:
    from autotune.planning.plan import PlanRequest, other_methods

    task, about = session.task, foresight.about
    request = PlanRequest(
        model=task.model,
        seq_len=task.seq_len,
        setting=task.setting,
        space=task.request.space,
        budgets=about.budgets,
        lora_targets=task.request.lora_targets,
        rates=about.rates,
    )
    last = task.stages[-1].method
    found = other_methods(last, request, foresight.predictor, session.observer.say, adjust=foresight.adjust)
    return {method: outlook.prediction.required_device_bytes for method, outlook in found.items()}


def _measure(session: Session, stage: Stage) -> Shortfall:
    point = smallest_point(stage.points, session.task.device)
    spec = session.spec(f"smallest-{stage.method}", point, limited=False)
    return Shortfall(point, session.run(spec, session.task.request.trial_timeout_seconds))
