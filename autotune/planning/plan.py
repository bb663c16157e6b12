"""The plan for a model and a budget: every point of the space predicted, the fitting ones ranked."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from autotune.errors import UsageError
from autotune.planning.advice import Rejection, rejections
from autotune.planning.outlook import Budgets, Outlook, broken_limit
from autotune.planning.speed import Rates, estimated_tokens_per_second
from autotune.prediction.bound import PointPredictor
from autotune.prediction.prediction import Prediction, PredictionFailure
from autotune.prediction.predictor import Predictor
from autotune.space import Setting, enumerate_points, load_space, space_for_method
from autotune.space.setting import RequestedMethod
from trials.wire import ModelSpec, Point

# How many of the best are predicted again by their own trace, so that what is shown is exact.
EXACT_BEST = 8
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
    method = request.setting.method
    methods: Sequence[RequestedMethod] = ("lora", "qlora") if method == "auto" else (method,)
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


def _plan_of(method: RequestedMethod, request: PlanRequest, predictor: Predictor, say: Say) -> Plan:
    points, notes = points_of(method, request)
    say(f"{method}: {len(points):,} distinct points")
    outlooks: list[Outlook] = []
    unpredictable: Counter[str] = Counter()
    for point, prediction in zip(points, _predicted(points, request, predictor), strict=True):
        if isinstance(prediction, Prediction):
            outlooks.append(_outlook(point, prediction, request))
        else:
            unpredictable[prediction.error] += 1
    if not outlooks and unpredictable:
        from autotune.prediction.errors import PredictionUnavailable

        reason, count = unpredictable.most_common(1)[0]
        raise PredictionUnavailable(f"none of {count:,} points can be predicted: {reason}")
    ranked = _exact_best(ranked_outlooks(outlooks, request.budgets), request, predictor)
    return Plan(
        method=method,
        outlooks=tuple(ranked),
        rejected=tuple(rejections(ranked, request.budgets)),
        unpredictable=dict(unpredictable),
        notes=tuple(notes),
    )


def _predicted(
    points: Sequence[Point], request: PlanRequest, predictor: Predictor, *, exact: bool = False
) -> Iterator[Prediction | PredictionFailure]:
    """Each point's prediction, from shared traces or from its own."""
    setting = request.setting
    points_of_model = PointPredictor(
        predictor, request.model, request.seq_len, request.lora_targets, setting.gpus
    )
    return points_of_model.many(points, exact=exact)


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
        points = [outlook.point for outlook in ranked[done:end]]
        for point, prediction in zip(points, _predicted(points, request, predictor, exact=True), strict=True):
            if isinstance(prediction, Prediction):
                ranked[done] = _outlook(point, prediction, request)
            fitting += ranked[done].fits
            done += 1
    return ranked_outlooks(ranked, request.budgets)


def _outlook(point: Point, prediction: Prediction, request: PlanRequest) -> Outlook:
    speed = estimated_tokens_per_second(
        request.model,
        request.seq_len,
        point,
        total_parameters=prediction.total_parameters,
        trainable_parameters=prediction.trainable_parameters,
        rates=request.rates,
        processes=request.setting.gpus,
    )
    return Outlook(point, prediction, broken_limit(prediction, request.budgets), speed)


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
        outlooks = [
            _outlook(point, adjust(point, prediction), plain)
            for point, prediction in zip(points, _predicted(points, plain, predictor), strict=True)
            if isinstance(prediction, Prediction)
        ]
        fitting = [one for one in ranked_outlooks(outlooks, request.budgets) if one.fits]
        if fitting:
            found[other] = fitting[0]
    return found
