"""Why one configuration fits or not, and which single changes would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.planning.outlook import Budgets, Limit, broken_limit, prediction_json
from autotune.planning.steps import Step, changes, single_steps
from autotune.prediction.prediction import Prediction
from autotune.prediction.predictor import Predictor
from autotune.throughput import H200_RATES, Rates, Training, predicted_speeds
from trials.wire import ModelSpec, Point

# How many changes are tried together where none is enough alone.
MOST_TOGETHER = 4

Say = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """What is asked about.

    Attributes:
        name: the model as the user calls it.
        model: resolved.
        seq_len: tokens per sequence.
        point: the configuration.
        budgets: what one process may take.
        lora_targets: adapted modules; None for all linear layers except the head.
        gpus: data-parallel processes.
        rates: of the GPU, for the speeds.
    """

    name: str
    model: ModelSpec
    seq_len: int
    point: Point
    budgets: Budgets
    lora_targets: tuple[str, ...] | None = None
    gpus: int = 1
    rates: Rates = H200_RATES


@dataclass(frozen=True)
class Remedy:
    """A change after which it fits.

    Attributes:
        changes: the fields that change, and their values then.
        point: the configuration then.
        prediction: its memory.
        relative_speed: a rough estimate, against the configuration that was asked about.
        quality: what it changes in what is learned; empty where it only costs speed.
    """

    changes: dict[str, Any]
    point: Point
    prediction: Prediction
    relative_speed: float
    quality: str

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "changes": self.changes,
            "point": self.point.model_dump(mode="json"),
            "required_device_bytes": self.prediction.required_device_bytes,
            "host_peak_bytes": self.prediction.host_peak_bytes,
            "relative_speed": round(self.relative_speed, 3),
            "costs_quality": self.quality or None,
        }


@dataclass(frozen=True)
class Explanation:
    """The answer.

    Attributes:
        question: what was asked.
        prediction: its memory.
        limit: the budget it breaks; None where it fits.
        remedies: single changes after which it fits, the cheapest loss of speed first.
        together: several changes after which it fits, where no single one is enough.
        least: what it needs after the changes that save most, where nothing makes it fit.
    """

    question: Question
    prediction: Prediction
    limit: Limit | None
    remedies: tuple[Remedy, ...] = ()
    together: Remedy | None = None
    least: Remedy | None = None

    @property
    def fits(self) -> bool:
        """Whether it stays inside every budget."""
        return self.limit is None

    def as_json(self) -> dict[str, Any]:
        """Plain values: the figures of `autotune estimate`, and the remedies."""
        question = self.question
        return {
            "model": question.name,
            "seq_len": question.seq_len,
            "method": question.point.method,
            "point": question.point.model_dump(mode="json"),
            **prediction_json(self.prediction),
            "fits": self.fits,
            "limit": self.limit,
            "budget_bytes": question.budgets.device_bytes,
            "host_budget_bytes": question.budgets.host_bytes,
            "remedies": [remedy.as_json() for remedy in self.remedies],
            "together": self.together.as_json() if self.together else None,
            "least": self.least.as_json() if self.least else None,
        }


def explain(question: Question, predictor: Predictor, say: Say) -> Explanation:
    """Predict a configuration and, where it does not fit, what would.

    Args:
        question: what is asked about.
        predictor: whose figures are used.
        say: told what takes time.

    Raises:
        PredictionUnavailable: it cannot be traced.
    """
    prediction = _predict(question, question.point, predictor)
    limit = broken_limit(prediction, question.budgets)
    if limit is None or leaves_no_room(question, prediction):
        return Explanation(question, prediction, limit)
    steps = single_steps(question.point, question.gpus)
    say(f"it does not fit: predicting {len(steps)} changes")
    predicted = _predicted(question, steps, predictor)
    remedies = _mildest(question, predicted)
    if remedies:
        return Explanation(question, prediction, limit, tuple(remedies))
    say("no single change is enough: looking for several together")
    found = _several(question, prediction, predicted, predictor)
    if found is not None and broken_limit(found.prediction, question.budgets) is None:
        return Explanation(question, prediction, limit, together=found)
    return Explanation(question, prediction, limit, least=found)


def leaves_no_room(question: Question, prediction: Prediction) -> bool:
    """Whether what a process holds outside PyTorch's allocator is more than the budget by itself."""
    budget = question.budgets.device_bytes
    return budget is not None and prediction.outside_allocator_bytes >= budget


def _mildest(question: Question, predicted: Sequence[tuple[Step, Prediction]]) -> list[Remedy]:
    """Of each kind the first step that fits, the least loss of speed first; what costs quality comes last."""
    chosen: dict[str, Remedy] = {}
    for step, after in predicted:
        if step.kind not in chosen and broken_limit(after, question.budgets) is None:
            chosen[step.kind] = _remedy(question, step.point, after, step.quality)
    return sorted(chosen.values(), key=lambda remedy: (bool(remedy.quality), -remedy.relative_speed))


def _several(
    question: Question,
    prediction: Prediction,
    predicted: Sequence[tuple[Step, Prediction]],
    predictor: Predictor,
) -> Remedy | None:
    """One change after another, each the one that then saves most; those that cost quality only at last."""
    point, now = question.point, prediction
    qualities: list[str] = []
    for _ in range(MOST_TOGETHER):
        free = [pair for pair in predicted if not pair[0].quality]
        best = _least(question, free, now) or _least(question, predicted, now)
        if best is None:
            break
        step, now = best
        point = step.point
        qualities += [step.quality] if step.quality else []
        if broken_limit(now, question.budgets) is None:
            break
        predicted = _predicted(question, single_steps(point, question.gpus), predictor)
    if point == question.point:
        return None
    return _remedy(question, point, now, "; ".join(qualities))


def _least(
    question: Question, predicted: Sequence[tuple[Step, Prediction]], now: Prediction
) -> tuple[Step, Prediction] | None:
    """The first step that fits, else the one that comes nearest; None where none comes nearer."""
    fitting = [pair for pair in predicted if broken_limit(pair[1], question.budgets) is None]
    if fitting:
        return fitting[0]
    best = min(predicted, key=lambda pair: _excess(question, pair[1]), default=None)
    return best if best is not None and _excess(question, best[1]) < _excess(question, now) else None


def _excess(question: Question, prediction: Prediction) -> float:
    """By what factor the limit that binds is broken."""
    budgets = question.budgets
    device = prediction.required_device_bytes / (budgets.device_bytes or prediction.required_device_bytes)
    host = prediction.host_peak_bytes / (budgets.host_bytes or max(1, prediction.host_peak_bytes))
    return max(device, host)


def _predicted(
    question: Question, steps: Sequence[Step], predictor: Predictor
) -> list[tuple[Step, Prediction]]:
    """The steps that can be predicted; a model without fused kernels simply has no such step."""
    answers = predictor.predict_many(
        question.model,
        question.seq_len,
        [step.point for step in steps],
        lora_targets=question.lora_targets,
        processes=question.gpus,
    )
    return [
        (step, answer) for step, answer in zip(steps, answers, strict=True) if isinstance(answer, Prediction)
    ]


def _predict(question: Question, point: Point, predictor: Predictor) -> Prediction:
    return predictor.predict(
        question.model,
        question.seq_len,
        point,
        lora_targets=question.lora_targets if point.lora_rank else None,
        processes=question.gpus,
    )


def _remedy(question: Question, point: Point, after: Prediction, quality: str) -> Remedy:
    training = Training(
        question.model, question.seq_len, question.rates, question.gpus, question.lora_targets
    )
    was, now = predicted_speeds(training, [question.point, point])
    return Remedy(changes(question.point, point), point, after, now / was, quality)
