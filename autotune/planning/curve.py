"""What a budget buys: the best predicted throughput for each, and which limit keeps it from being more.

Memory is predicted once for the whole space; a budget only cuts it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autotune.errors import UsageError
from autotune.planning.outlook import Budgets, Limit, Outlook, broken_limit
from autotune.planning.plan import PlanRequest, Say, exact_outlook, methods_of, outlooks_of
from autotune.prediction.predictor import Predictor

GIB = 2**30
# From the smallest card that trains anything to an H200.
CURVE_BYTES = tuple(size * GIB for size in range(8, 142))
# Faster by less than this is not what a limit keeps one from.
SAME_SPEED = 0.005
MOST_EXACT = 8

Binding = Literal["device", "host"]


@dataclass(frozen=True)
class Bought:
    """What one budget buys.

    Attributes:
        budget_bytes: device memory of one process.
        best: the fastest predicted point that fits; None where none does.
        limit: the limit without which a faster point would fit, or any at all; None where more memory buys
            nothing.
        nearest: where nothing fits, the point that lacks least.
    """

    budget_bytes: int
    best: Outlook | None
    limit: Binding | None
    nearest: Outlook | None = None

    def as_json(self) -> dict[str, Any]:
        """The budget, the best point with the figures of `autotune plan`, and the limit that binds."""
        shown = self.best or self.nearest
        figures = shown.as_json() if shown else {}
        return {
            **figures,
            "budget_bytes": self.budget_bytes,
            "fits": self.best is not None,
            "limit": self.limit,
            "estimated_tokens_per_second": self.best.tokens_per_second if self.best else None,
        }


@dataclass(frozen=True)
class Curve:
    """What several budgets buy.

    Attributes:
        asked: the budgets asked about, smallest first.
        steps: from 8 to 141 GiB, the budgets at which the best point changes.
        notes: what the user should know.
    """

    asked: tuple[Bought, ...]
    steps: tuple[Bought, ...]
    notes: tuple[str, ...] = ()


def make_curve(request: PlanRequest, budgets: Sequence[int], predictor: Predictor, say: Say) -> Curve:
    """Predict the space once and cut it by each budget.

    Args:
        request: what is asked; of its budgets only that for host memory counts.
        budgets: device memory, bytes; may be none, for the curve alone.
        predictor: whose figures are used.
        say: told what takes time.

    Raises:
        UsageError: no point is possible in this setting.
        PredictionUnavailable: the model cannot be traced at all.
    """
    host_bytes = request.budgets.host_bytes
    unlimited = dataclasses.replace(request, budgets=Budgets())
    stages: list[Sequence[Outlook]] = []
    notes: list[str] = []
    for index, method in enumerate(methods_of(request)):
        try:
            found = outlooks_of(method, unlimited, predictor, say)
        except UsageError:
            # The space has no point of a later method: what the first one buys stands.
            if index == 0:
                raise
            break
        stages.append(found.outlooks)
        notes += [note for note in found.notes if note not in notes]
        notes += [f"{n:,} points could not be predicted: {why}" for why, n in found.unpredictable.items()]
    asked = []
    for budget in sorted(set(budgets)):
        bought = what_it_buys(stages, budget, host_bytes)
        for _ in range(MOST_EXACT):
            if bought.best is None or bought.best.prediction.exact:
                break
            # What is shown is exact; one that turns out not to fit gives way to the next.
            exact = exact_outlook(bought.best, unlimited, predictor)
            stages = [[exact if one.point == exact.point else one for one in stage] for stage in stages]
            bought = what_it_buys(stages, budget, host_bytes)
        asked.append(bought)
    return Curve(tuple(asked), tuple(steps_of(stages, host_bytes)), tuple(notes))


def what_it_buys(stages: Sequence[Sequence[Outlook]], budget_bytes: int, host_bytes: int | None) -> Bought:
    """The best of the first method of which anything fits.

    Args:
        stages: each method's outlooks, in the order in which methods are tried.
        budget_bytes: device memory.
        host_bytes: host memory; None: no limit.
    """
    budgets = Budgets(budget_bytes, host_bytes)
    for stage in stages:
        best = _fastest(stage, budgets)
        if best is not None:
            return Bought(budget_bytes, best, _binding(best, stage, budgets))
    every = [one for stage in stages for one in stage]
    within_host = [one for one in every if broken_limit(one.prediction, Budgets(None, host_bytes)) is None]
    nearest = min(within_host or every, key=lambda one: one.prediction.required_device_bytes, default=None)
    return Bought(budget_bytes, None, "device" if within_host else "host", nearest)


def steps_of(
    stages: Sequence[Sequence[Outlook]], host_bytes: int | None, budgets: Sequence[int] = CURVE_BYTES
) -> list[Bought]:
    """The smallest of these budgets, and those at which a larger one buys another point."""
    # Of points that need no less than a faster one of their method none is ever the best.
    stages = [_frontier(stage, host_bytes) for stage in stages]
    found: list[Bought] = []
    for budget in budgets:
        bought = what_it_buys(stages, budget, host_bytes)
        last = found[-1] if found else None
        if last is None or _point(bought) != _point(last):
            found.append(bought)
    return found


def _frontier(stage: Sequence[Outlook], host_bytes: int | None) -> list[Outlook]:
    inside = [one for one in stage if broken_limit(one.prediction, Budgets(None, host_bytes)) is None]
    ordered = sorted(inside, key=lambda one: (one.prediction.required_device_bytes, -_speed(one)))
    frontier: list[Outlook] = []
    for one in ordered:
        if not frontier or _speed(one) > _speed(frontier[-1]):
            frontier.append(one)
    # What host memory forbids may still be what a budget lacks.
    return [*frontier, *(one for one in stage if one not in inside)] if len(inside) < len(stage) else frontier


def _fastest(stage: Sequence[Outlook], budgets: Budgets) -> Outlook | None:
    fitting = [one for one in stage if broken_limit(one.prediction, budgets) is None]
    return max(fitting, key=lambda one: (_speed(one), -one.prediction.required_device_bytes), default=None)


def _binding(best: Outlook, stage: Sequence[Outlook], budgets: Budgets) -> Limit | None:
    without: dict[Binding, Budgets] = {
        "device": Budgets(None, budgets.host_bytes),
        "host": Budgets(budgets.device_bytes, None),
    }
    for limit, others in (*without.items(), ("device", Budgets())):
        faster = _fastest(stage, others)
        if faster is not None and _speed(faster) > (1 + SAME_SPEED) * _speed(best):
            return limit
    return None


def _speed(outlook: Outlook) -> float:
    return outlook.tokens_per_second or 0.0


def _point(bought: Bought) -> object:
    return bought.best.point if bought.best else None
