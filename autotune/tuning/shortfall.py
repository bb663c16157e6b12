"""When nothing fits: what the smallest point needs, predicted or measured without the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autotune.tuning.limits import LIMITS, Limit, limits_in_the_way, limits_words
from autotune.tuning.session import Session
from autotune.tuning.smallest import smallest_host_point, smallest_point
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
        limits: the budgets that stood in the way: device, host.
        host_budget_bytes: host memory that a trial was allowed.
        untried: whether trials or time were used up before it was tried.
    """

    point: Point
    result: TrialResult
    limits: tuple[Limit, ...] = ("device",)
    host_budget_bytes: int | None = None
    untried: bool = False

    @property
    def needed_bytes(self) -> int | None:
        """Device memory it needs; None where it did not run without a limit either."""
        if not self.ran:
            return None
        result = self.result
        return (
            result.required_device_bytes if result.required_device_bytes is not None else result.device_bytes
        )

    @property
    def host_bytes(self) -> int | None:
        """Host memory it needs; None where it did not run without a limit either."""
        return self.result.host_peak_bytes if self.ran else None

    def fits(self, budget_bytes: int) -> bool:
        """Whether it stays inside the budgets after all: of the device, and of the host as far as known."""
        device, host = self.needed_bytes, self.host_bytes
        within_host = self.host_budget_bytes is None or host is None or host <= self.host_budget_bytes
        return device is not None and device <= budget_bytes and within_host

    @property
    def ran(self) -> bool:
        """Whether it ran well without a limit."""
        return self.result.outcome in (Outcome.OK, Outcome.STOPPED)


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
        limits: all budgets that some point breaks; empty in studies of older versions.
        host_budget_bytes: host memory that a trial may take.
    """

    point: Point
    limit: str
    needed_bytes: int
    host_bytes: int
    why: str
    other_methods: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    host_budget_bytes: int | None = None

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
        limits = tuple(predicted.get("limits", (predicted["limit"],)))
        point = Point.model_validate(predicted["point"])
        return PredictedShortfall(**{**predicted, "point": point, "limits": limits})
    return Shortfall(
        Point.model_validate(known["point"]),
        TrialResult.model_validate(known["result"]),
        tuple(known.get("limits", ("device",))),
        known.get("host_budget_bytes"),
        known.get("untried", False),
    )


def found_shortfall(session: Session, *, cut_short: bool) -> Shortfall:
    """The smallest point of all methods without the limit: as an earlier call measured it, else measured now.

    Where the host's budget alone is in the way, that is the least of host memory.

    Args:
        session: the work.
        cut_short: whether trials or time were used up.

    Raises:
        KeyboardInterrupt: the user stopped it.
    """
    known = known_shortfall(session.study)
    smallest = known if isinstance(known, Shortfall) else _smallest(session)
    tried = {record.point for record in session.measured()}
    smallest = replace(smallest, untried=cut_short and smallest.point not in tried)
    if smallest.ran:
        note = {
            "point": smallest.point.model_dump(mode="json"),
            "result": smallest.result.model_dump(mode="json"),
            "limits": list(smallest.limits),
            "host_budget_bytes": smallest.host_budget_bytes,
            "untried": smallest.untried,
        }
        with session.interrupts.held():
            session.study.set_note(NOTE, note)
    return smallest


def _smallest(session: Session) -> Shortfall:
    """Measure the smallest point of each method without the limit; the one that needs least."""
    task = session.task
    limits = limits_in_the_way(session, (point for stage in task.stages for point in stage.points))
    words = limits_words(limits, task.budget.size_bytes, task.host_budget_bytes)
    session.observer.say(
        f"nothing fits {words}: measuring what the smallest configuration needs without the limit"
    )
    measured = [_measure(session, stage, limits) for stage in task.stages]
    return min(measured, key=_needed)


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
    outlooks = foresight.outlooks(points)
    closest = nearest(outlooks, budgets)
    assert closest.limit is not None, "what fits was handled above"
    found = PredictedShortfall(
        point=closest.point,
        limit=closest.limit,
        needed_bytes=closest.prediction.required_device_bytes,
        host_bytes=closest.prediction.host_peak_bytes,
        why=reason(closest, budgets),
        other_methods=_other_methods(session, foresight),
        limits=tuple(limit for limit in LIMITS if any(one.limit == limit for one in outlooks)),
        host_budget_bytes=session.task.host_budget_bytes,
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


def _needed(one: Shortfall) -> float:
    needed = one.host_bytes if one.limits == ("host",) else one.needed_bytes
    return math.inf if needed is None else needed


def _measure(session: Session, stage: Stage, limits: tuple[Limit, ...]) -> Shortfall:
    task = session.task
    smallest = smallest_host_point if limits == ("host",) else smallest_point
    point = smallest(stage.points, task.device)
    spec = session.spec(f"smallest-{stage.method}", point, limited=False)
    # Memory is that of the first two steps, of the second micro batch of each, and of what a winner does
    # after them; nothing is timed.
    accumulated = min(2, point.gradient_accumulation_steps)
    spec = spec.model_copy(
        update={
            "point": point.model_copy(update={"gradient_accumulation_steps": accumulated}),
            "warmup_steps": 1,
            "min_timed_steps": 1,
            "max_timed_steps": 1,
            "min_measure_seconds": 0.0,
            "confirm": True,
        }
    )
    result = session.run(spec, task.request.trial_timeout_seconds)
    return Shortfall(point, result, limits or ("device",), task.host_budget_bytes)
