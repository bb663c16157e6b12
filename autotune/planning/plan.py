"""The plan for a model and a budget: every point of the space predicted, the fitting ones ranked."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.errors import UsageError
from autotune.planning.advice import Rejection, rejections
from autotune.planning.outlook import Budgets, Outlook, broken_limit
from autotune.prediction.bound import PointPredictor
from autotune.prediction.prediction import Prediction, PredictionFailure
from autotune.prediction.predictor import Predictor
from autotune.space import Setting, enumerate_points, load_space, space_for_method
from autotune.space.setting import RequestedMethod
from autotune.throughput import Rates, Training, predicted_speeds
from trials.wire import ModelSpec, Point

# So many of the best are looked at again: the first of them, and what is near the budget, get a trace of
# their own. What is allocated is exact in shared traces too; such a trace says how much more is needed.
EXACT_BEST = 8
EXACT_FIRST = 3
NEAR_SHARE = 0.95
# Methods from the most to the least demanding: what to propose when nothing fits.
GENTLER: tuple[RequestedMethod, ...] = ("full", "lora", "qlora")

Say = Callable[[str], None]


@dataclass(frozen=True)
class PlanRequest:
    """What is asked.

    Attributes:
        model: resolved.
        seq_len: tokens per sequence.
        setting: method, batch, GPUs, rank and what the target machine can do.
        space: a shipped space's name or a file; None: follows from the method.
        budgets: device and host memory of one process.
        lora_targets: adapted modules; None for all linear layers except the head.
        rates: of the target GPU, for the ranking.
    """

    model: ModelSpec
    seq_len: int
    setting: Setting
    space: str | None
    budgets: Budgets
    lora_targets: tuple[str, ...] | None
    rates: Rates

    def training(self) -> Training:
        """What is trained, on what, for the speed."""
        return Training(self.model, self.seq_len, self.rates, self.setting.gpus, self.lora_targets)


@dataclass(frozen=True)
class Plan:
    """What was found.

    Attributes:
        method: what the points are of; with `auto` what it came to.
        outlooks: all predicted points, those that fit first, the fastest of them first.
        rejected: the groups that do not fit, and why.
        unpredictable: how many points could not be predicted, by reason.
        other_methods: methods that would fit where the asked one does not, with their best point.
        notes: what the user should know.
    """

    method: str
    outlooks: tuple[Outlook, ...]
    rejected: tuple[Rejection, ...]
    unpredictable: dict[str, int] = field(default_factory=dict)
    other_methods: dict[str, Outlook] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def fitting(self) -> tuple[Outlook, ...]:
        """The points that fit, best first."""
        return tuple(outlook for outlook in self.outlooks if outlook.fits)


def make_plan(request: PlanRequest, predictor: Predictor, say: Say) -> Plan:
    """Predict every point of the space and rank what fits.

    Args:
        request: what is asked.
        predictor: whose figures are used.
        say: told what takes time.

    Raises:
        UsageError: no point is possible in this setting.
        PredictionUnavailable: the model cannot be traced at all.
    """
    method, methods = request.setting.method, methods_of(request)
    plan = _plan_of(methods[0], request, predictor, say)
    for later in methods[1:]:
        if plan.fitting:
            break
        say(f"no {plan.method} configuration fits: looking at {later}")
        try:
            plan = _plan_of(later, request, predictor, say)
        except UsageError:
            # The space has no point of that method: what was found of the first one stands.
            break
    if plan.fitting or method == "any":
        return plan
    return dataclasses.replace(plan, other_methods=other_methods(plan.method, request, predictor, say))


def methods_of(request: PlanRequest) -> Sequence[RequestedMethod]:
    """The methods to look at, in order: LoRA and then QLoRA for `auto`."""
    method = request.setting.method
    return ("lora", "qlora") if method == "auto" else (method,)


@dataclass(frozen=True)
class Predicted:
    """A method's space, predicted.

    Attributes:
        outlooks: of the points that could be predicted, in the space's order.
        unpredictable: how many could not, by reason.
        notes: what had to be changed in the space.
    """

    outlooks: tuple[Outlook, ...]
    unpredictable: dict[str, int]
    notes: tuple[str, ...]


def _plan_of(method: RequestedMethod, request: PlanRequest, predictor: Predictor, say: Say) -> Plan:
    found = outlooks_of(method, request, predictor, say)
    ranked = _exact_best(ranked_outlooks(found.outlooks, request.budgets), request, predictor)
    return Plan(
        method=method,
        outlooks=tuple(ranked),
        rejected=tuple(rejections(ranked, request.budgets)),
        unpredictable=found.unpredictable,
        notes=found.notes,
    )


def outlooks_of(method: RequestedMethod, request: PlanRequest, predictor: Predictor, say: Say) -> Predicted:
    """Every point of a method's space, predicted from shared traces.

    Raises:
        UsageError: no point is possible in this setting.
        PredictionUnavailable: none can be predicted.
    """
    points, notes = points_of(method, request)
    say(f"{method}: {len(points):,} distinct points")
    predictions: dict[Point, Prediction] = {}
    unpredictable: Counter[str] = Counter()
    for point, prediction in zip(points, _predicted(points, request, predictor), strict=True):
        if isinstance(prediction, Prediction):
            predictions[point] = prediction
        else:
            unpredictable[prediction.error] += 1
    outlooks = _outlooks(predictions, request)
    if not outlooks and unpredictable:
        from autotune.prediction.errors import PredictionUnavailable

        reason, count = unpredictable.most_common(1)[0]
        raise PredictionUnavailable(f"none of {count:,} points can be predicted: {reason}")
    return Predicted(tuple(outlooks), dict(unpredictable), notes)


def _predicted(
    points: Sequence[Point], request: PlanRequest, predictor: Predictor, *, exact: bool = False
) -> Iterator[Prediction | PredictionFailure]:
    """Each point's prediction, from shared traces or from its own."""
    return _bound(request, predictor).many(points, exact=exact)


def _bound(request: PlanRequest, predictor: Predictor) -> PointPredictor:
    """The predictor of what is asked for."""
    return PointPredictor(
        predictor, request.model, request.seq_len, request.lora_targets, request.setting.gpus
    )


def points_of(method: RequestedMethod, request: PlanRequest) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """The distinct points of a method's space in this setting, and what had to be changed."""
    space = load_space(request.space or space_for_method(method))
    found = enumerate_points(space, dataclasses.replace(request.setting, method=method))
    return found.points, found.notes


def ranked_outlooks(outlooks: Sequence[Outlook], budgets: Budgets) -> list[Outlook]:
    """Those that fit first, the fastest first; then those that do not, the nearest first."""

    def key(outlook: Outlook) -> tuple[bool, float]:
        if outlook.fits:
            return False, -(outlook.tokens_per_second or 0.0)
        limit = budgets.host_bytes if outlook.limit == "host" else budgets.device_bytes
        figures = outlook.prediction
        needed = figures.host_peak_bytes if outlook.limit == "host" else figures.required_device_bytes
        return True, needed / (limit or 1)

    return sorted(outlooks, key=key)


def _exact_best(ranked: list[Outlook], request: PlanRequest, predictor: Predictor) -> list[Outlook]:
    """The list with its first points predicted by their own traces, until enough of those fit."""
    done, fitting = 0, 0
    while done < len(ranked) and ranked[done].fits and fitting < EXACT_BEST:
        # As many at once as are still wanted: their traces are made side by side.
        end = min(done + EXACT_BEST - fitting, sum(outlook.fits for outlook in ranked))
        close = [
            index
            for index in range(done, end)
            if index < EXACT_FIRST or _is_near(ranked[index], request.budgets)
        ]
        points = [ranked[index].point for index in close]
        for index, prediction in zip(close, _predicted(points, request, predictor, exact=True), strict=True):
            if isinstance(prediction, Prediction):
                ranked[index] = _predicted_anew(ranked[index], prediction, request)
        fitting += sum(outlook.fits for outlook in ranked[done:end])
        done = end
    return ranked_outlooks(ranked, request.budgets)


def _is_near(outlook: Outlook, budgets: Budgets) -> bool:
    budget = budgets.device_bytes
    prediction = outlook.prediction
    return prediction.estimated or (
        budget is not None and prediction.required_device_bytes > NEAR_SHARE * budget
    )


def exact_outlook(outlook: Outlook, request: PlanRequest, predictor: Predictor) -> Outlook:
    """The same point, predicted by its own trace."""
    return _predicted_anew(outlook, _bound(request, predictor).exact(outlook.point), request)


def _predicted_anew(outlook: Outlook, prediction: Prediction, request: PlanRequest) -> Outlook:
    limit = broken_limit(prediction, request.budgets)
    return dataclasses.replace(outlook, prediction=prediction, limit=limit)


def _outlooks(predictions: Mapping[Point, Prediction], request: PlanRequest) -> list[Outlook]:
    """The points' outlooks, with the speed that physics says."""
    speeds = predicted_speeds(request.training(), list(predictions))
    return [
        Outlook(point, prediction, broken_limit(prediction, request.budgets), speed)
        for (point, prediction), speed in zip(predictions.items(), speeds, strict=True)
    ]


def other_methods(
    method: str,
    request: PlanRequest,
    predictor: Predictor,
    say: Say,
    *,
    adjust: Callable[[Point, Prediction], Prediction] = lambda point, prediction: prediction,
) -> dict[str, Outlook]:
    """The gentler methods that do fit, each with its best point of the smallest micro batch.

    Args:
        method: the one that does not fit.
        request: what is asked.
        predictor: whose figures are used.
        say: told what takes time.
        adjust: what else is known of a point's memory, on the machine at hand.
    """
    found: dict[str, Outlook] = {}
    later = GENTLER[GENTLER.index(method) + 1 :] if method in GENTLER else ()  # type: ignore[arg-type]
    plain = dataclasses.replace(request, space=None)
    for other in later:
        try:
            points, _ = points_of(other, plain)
        except UsageError:
            continue
        least = min(point.micro_batch_size for point in points)
        points = tuple(point for point in points if point.micro_batch_size == least)
        say(f"would {other} fit? {len(points):,} points")
        predictions = {
            point: adjust(point, prediction)
            for point, prediction in zip(points, _predicted(points, plain, predictor), strict=True)
            if isinstance(prediction, Prediction)
        }
        outlooks = _outlooks(predictions, plain)
        fitting = [one for one in ranked_outlooks(outlooks, request.budgets) if one.fits]
        if fitting:
            found[other] = fitting[0]
    return found
