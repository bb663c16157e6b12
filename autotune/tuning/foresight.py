"""What is predicted of a study's points on this machine, and which of them are therefore never launched.

The space is predicted from shared traces, which is fast and right to about a percent of what is needed;
whatever comes close to the budget is decided by a trace and a replay of its own before it is launched. In a
large space only what is likely to be fast is predicted ahead, and the rest when it is about to be launched; a
point that does not fit then rules out those that need at least as much.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autotune.errors import AutotuneError, UsageError
from autotune.planning.outlook import Budgets, Outlook, broken_limit
from autotune.prediction import PointPredictor, Prediction, PredictionUnavailable
from autotune.sizes import format_size
from autotune.tuning.adjusting import adjusted, least_device_bytes
from autotune.tuning.ahead import groups, probes
from autotune.tuning.comparison import recorded
from trials.wire import ModelSpec, Phase, Point

if TYPE_CHECKING:
    from autotune.prediction import Predictor
    from autotune.running import OutsideShare
    from autotune.throughput import Rates, Training
    from autotune.throughput.coefficients import Vector
    from autotune.tuning.corrections import Corrections

# Closer to the budget than this, a point's own trace decides.
NEAR_SHARE = 0.95
# After this long of predicting ahead, the rest is predicted one by one, as it comes up.
AHEAD_SECONDS = 20.0
# Figures taken from a neighbour are right to this share.
ESTIMATE_SHARE = 0.9

# A peak of the training steps: only what is larger in every respect needs at least as much.
LAST_PHASE = Phase.LATER_STEP

Verdict = Literal["fits", "near", "device", "host"]
# What is near is looked at closely before it is launched: what it costs to be wrong is that look.
CHANCES: dict[Verdict | None, float] = {"fits": 1.0, "near": 0.9, "device": 0.0, "host": 0.0}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Foreseen:
    """What is predicted: for which training, on which machine.

    Attributes:
        model: what is trained.
        seq_len: tokens per sequence.
        lora_targets: adapted modules; None for all linear layers except the head.
        processes: data-parallel processes.
        budgets: of one process.
        rates: the machine's, for the speed.
    """

    model: ModelSpec
    seq_len: int
    lora_targets: tuple[str, ...] | None
    processes: int
    budgets: Budgets
    rates: Rates

    def training(self) -> Training:
        """What is trained, on what, for the speed."""
        from autotune.throughput import Training

        return Training(self.model, self.seq_len, self.rates, self.processes, self.lora_targets)


class Foresight:
    """The predictions of a study's points, with what is known of this machine.

    Args:
        about: what is predicted.
        predictor: makes predictions; its owner closes it.
        outside: the machine's shares outside the allocator, which may grow while trials run.
        corrections: what trials taught about predictions.
        say: told what takes time and what cannot be predicted.
    """

    def __init__(
        self,
        about: Foreseen,
        predictor: Predictor,
        outside: OutsideShare,
        corrections: Corrections,
        say: Say,
    ) -> None:
        self.about = about
        self.predictor = predictor
        self.corrections = corrections
        self.outside = outside
        self._say = say
        self._points = PointPredictor(
            predictor, about.model, about.seq_len, about.lora_targets, about.processes
        )
        self._made: dict[Point, Prediction] = {}
        self._looked_at: dict[Point, None] = {}
        self._undecidable: set[Point] = set()
        self._waiting: dict[Point, None] = {}
        self._ruled_out: set[Point] = set()
        self._verdicts: dict[Point, Verdict] = {}
        self._known: tuple[object, ...] = ()

    def look(self, points: Sequence[Point]) -> None:
        """Predict the points that were not looked at before.

        Raises:
            PredictionUnavailable: none of them can be predicted.
        """
        new = [point for point in points if point not in self._looked_at and point not in self._waiting]
        if not new:
            return
        began = time.monotonic()
        self._say(f"predicting the memory of {len(new):,} configurations ...")
        worth = self._worth(new)
        self._require_any(new, max(new, key=worth.__getitem__))
        reasons: Counter[str] = Counter()
        done: list[Point] = []
        for group in groups(new, self._points.is_shared, worth, self.predictor.workers):
            for point, found in zip(group, self._points.many(group), strict=True):
                if done and time.monotonic() - began > AHEAD_SECONDS:
                    break
                self.know(point, found if isinstance(found, Prediction) else None)
                if not isinstance(found, Prediction):
                    reasons[found.error] += 1
                done.append(point)
            if time.monotonic() - began > AHEAD_SECONDS:
                break
        self._waiting.update(dict.fromkeys(point for point in new if point not in self._looked_at))
        if reasons and len(new) == reasons.total():
            raise PredictionUnavailable(reasons.most_common(1)[0][0])
        self._tell(done, len(new), time.monotonic() - began, reasons)

    def _worth(self, points: Sequence[Point]) -> dict[Point, float]:
        """How promising each point is before anything is known of it: its speed, where it has room."""
        from autotune.throughput import predicted_speeds

        try:
            speeds = predicted_speeds(self.about.training(), list(points))
            chances = self.chances(points)
        except UsageError as error:
            raise PredictionUnavailable(error.message, error.hint) from error
        return {point: speed * chance for point, speed, chance in zip(points, speeds, chances, strict=True)}

    def _tell(self, done: Sequence[Point], total: int, seconds: float, reasons: Counter[str]) -> None:
        out = sum(self.verdict(point) in ("device", "host") for point in done)
        text = f"predicted in {seconds:.0f} s: {out:,} of {len(done):,} do not fit and will not be launched"
        if len(done) < total:
            text += f"; the other {total - len(done):,} are predicted as they come up"
        self._say(text)
        if reasons:
            reason, _ = reasons.most_common(1)[0]
            self._say(
                f"{reasons.total():,} configurations cannot be predicted and are tried like any other: "
                f"{reason}"
            )

    def know(self, point: Point, prediction: Prediction | None) -> None:
        """Take a point's prediction; None: there can be none."""
        self._looked_at[point] = None
        if prediction is not None:
            self._made[point] = prediction
        self._verdicts.pop(point, None)

    def outlook(self, point: Point) -> Outlook | None:
        """The point's prediction for this machine against the budgets; None where there is none."""
        made = self._made.get(point)
        if made is None:
            return None
        prediction = self.adjust(point, made)
        return Outlook(point, prediction, broken_limit(prediction, self.about.budgets))

    def adjust(self, point: Point, prediction: Prediction) -> Prediction:
        """A prediction with this machine's share outside the allocator and what its trials taught."""
        deltas = self.corrections.deltas(point, prediction.phase_peak_allocated_bytes)
        return adjusted(prediction, self.outside.bytes_for(point), deltas)

    def verdict(self, point: Point) -> Verdict | None:
        """Whether a point fits, comes so near that its own trace has to decide, or which limit it breaks.

        None where nothing is predicted of it.
        """
        known = (self.corrections.version, self.outside.known)
        if known != self._known:
            # What was learned since moves every point.
            self._verdicts.clear()
            self._known = known
        if point in self._ruled_out:
            return "device"
        if point not in self._verdicts:
            outlook = self.outlook(point)
            if outlook is None:
                return None
            self._verdicts[point] = self._verdict(outlook)
        return self._verdicts[point]

    def may_fit(self, point: Point) -> bool:
        """Whether a point is worth a launch, as far as is known."""
        return self.verdict(point) not in ("device", "host")

    def chances(self, points: Sequence[Point]) -> Vector:
        """The chance that each point is launched and fits: by its verdict, else by what its sizes say."""
        from autotune.throughput.room import chance_of_room, rough_needs

        verdicts = [self.verdict(point) for point in points]
        known = np.array([CHANCES.get(verdict, np.nan) for verdict in verdicts])
        unknown = np.flatnonzero(np.isnan(known))
        if len(unknown):
            needs = rough_needs(self.about.training(), [points[int(row)] for row in unknown])
            known[unknown] = chance_of_room(needs, [], limit_bytes=self.about.budgets.device_bytes)
        return known

    def decide(self, point: Point) -> bool:
        """Whether a point is to be launched: one near a limit, or not predicted yet, is looked at first."""
        if point in self._waiting:
            self._look_alone(point)
        elif self.verdict(point) == "near":
            self.exact(point)
        return self.may_fit(point)

    def _look_alone(self, point: Point) -> None:
        """Predict a point that waited; where it does not fit, neither do those that need at least as much."""
        from autotune.study.dominance import needs_at_least

        del self._waiting[point]
        try:
            prediction = self._points.exact(point)
        except (AutotuneError, OSError):
            self.know(point, None)
            return
        self.know(point, prediction)
        if self.may_fit(point):
            return
        for other in [other for other in self._waiting if needs_at_least(other, point, failed_in=LAST_PHASE)]:
            del self._waiting[other]
            self._looked_at[other] = None
            self._ruled_out.add(other)

    def exact(self, point: Point) -> None:
        """Replace a point's prediction by that of its own trace, where that can be made."""
        made = self._made.get(point)
        if made is None or made.exact or point in self._undecidable:
            return
        try:
            self._made[point] = self._points.exact(point)
        except (AutotuneError, OSError):
            # The shared traces' figure is all there is; the allocator's cap decides.
            self._undecidable.add(point)
        self._verdicts.pop(point, None)

    def made(self, point: Point) -> Prediction | None:
        """A point's prediction as it was made, without anything this machine adds."""
        return self._made.get(point)

    def recorded(self, point: Point) -> dict[str, Any] | None:
        """A point's prediction as its trial keeps it."""
        made, outlook = self._made.get(point), self.outlook(point)
        if made is None or outlook is None:
            return None
        deltas = self.corrections.deltas(point, made.phase_peak_allocated_bytes)
        return recorded(outlook.prediction, deltas)

    def skipped(self, measured: Collection[Point]) -> int:
        """How many of the points looked at are not launched because of their prediction."""
        return sum(not self.may_fit(point) for point in self._looked_at if point not in measured)

    def is_host_limited(self) -> bool:
        """Whether host memory keeps some point from being launched."""
        return any(self.verdict(point) == "host" for point in self._looked_at)

    def outlooks(self, points: Iterable[Point]) -> list[Outlook]:
        """The outlooks of those points that are predicted, with a rough speed."""
        from autotune.throughput import predicted_speeds

        found = [outlook for outlook in map(self.outlook, points) if outlook is not None]
        speeds = predicted_speeds(self.about.training(), [outlook.point for outlook in found])
        return [replace(one, tokens_per_second=speed) for one, speed in zip(found, speeds, strict=True)]

    def excluded_by_corrections(self) -> int:
        """How many points would be launched, had no trial shown that they need more than was predicted."""
        count = 0
        for point, made in self._made.items():
            if self.may_fit(point):
                continue
            plain = adjusted(made, self.outside.bytes_for(point), {})
            outlook = Outlook(point, plain, broken_limit(plain, self.about.budgets))
            count += self._verdict(outlook) not in ("device", "host")
        return count

    def _verdict(self, outlook: Outlook) -> Verdict:
        budget, prediction = self.about.budgets.device_bytes, outlook.prediction
        if outlook.limit == "host" or budget is None:
            return outlook.limit or "fits"
        decided = prediction.exact or outlook.point in self._undecidable
        if outlook.limit == "device":
            # What is allocated is exact in shared traces too; how much more is needed is their estimate.
            least = least_device_bytes(prediction) * (ESTIMATE_SHARE if prediction.estimated else 1.0)
            return "device" if prediction.exact or least > budget else "near"
        near = ESTIMATE_SHARE if prediction.estimated else NEAR_SHARE
        if not decided and prediction.required_device_bytes > near * budget:
            return "near"
        return "fits"

    def _require_any(self, points: Sequence[Point], promising: Point) -> None:
        """Raises where a few different points all fail: a broken worker would fail thousands, one by one.

        The most promising one is tried first: its own trace is wanted anyway before it is launched.
        """
        try:
            self._points.exact(promising)
            return
        except PredictionUnavailable:
            pass
        made = list(self._points.many(probes(points)))
        failures = [found for found in made if not isinstance(found, Prediction)]
        if len(failures) == len(made):
            raise PredictionUnavailable(failures[0].error)


def foreseen_words(outlook: Outlook, budgets: Budgets) -> str:
    """`22.1 of 24.0 GiB`: what a point is predicted to need."""
    needed = format_size(outlook.prediction.required_device_bytes)
    return needed if budgets.device_bytes is None else f"{needed} of {format_size(budgets.device_bytes)}"
