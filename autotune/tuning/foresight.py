"""What is predicted of a study's points on this machine, and which of them are therefore never launched.

The space is predicted from shared traces, which is fast and right to about a percent of what is needed;
whatever comes close to the budget is decided by a trace and a replay of its own before it is launched. In a
large space only what is likely to be fast is predicted ahead, and the rest while trials run. What is about to
be launched and still not predicted is looked at alone; where it does not fit, so do those that need as much.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.errors import AutotuneError, UsageError
from autotune.planning.outlook import Outlook, broken_limit
from autotune.prediction import PointPredictor, Prediction, PredictionFailure, PredictionUnavailable
from autotune.tuning.adjusting import adjusted
from autotune.tuning.ahead import groups, probes
from autotune.tuning.background import Background, workers_beside_trials
from autotune.tuning.comparison import recorded
from autotune.tuning.foreseen import CHANCES, Foreseen, Verdict, verdict_of
from trials.wire import Phase, Point

if TYPE_CHECKING:
    from autotune.prediction import Predictor
    from autotune.running import OutsideShare
    from autotune.throughput.coefficients import Vector
    from autotune.tuning.corrections import Corrections

# After this long of predicting ahead, the rest is predicted while trials run.
AHEAD_SECONDS = 20.0
# How long a wait for predictions lasts when that time is up, before it is looked at again.
SLICE_SECONDS = 0.2
# So many of the most promising points near the budget get traces of their own in advance.
LOOKED_AT_AHEAD = 8
# A peak of the training steps: only what is larger in every respect needs at least as much.
LAST_PHASE = Phase.LATER_STEP

Say = Callable[[str], None]


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
        # What is not predicted yet, and how promising it is.
        self._waiting: dict[Point, float] = {}
        self._background: Background | None = None
        self._reasons: Counter[str] = Counter()
        self._stopped: str | None = None
        self._ruled_out: set[Point] = set()
        self._verdicts: dict[Point, Verdict] = {}
        self._known: tuple[object, ...] = ()

    def look(self, points: Sequence[Point]) -> None:
        """Predict the points that were not looked at before: some now, the rest while trials run.

        Raises:
            PredictionUnavailable: none of them can be predicted.
        """
        new = [point for point in points if point not in self._looked_at and point not in self._waiting]
        if not new:
            return
        self.close()
        self._reasons.clear()
        began = time.monotonic()
        self._say(f"predicting the memory of {len(new):,} configurations ...")
        worth = self._worth(new)
        self._waiting.update(worth)
        workers = self.predictor.workers
        in_order = groups(new, self._points.is_shared, worth, workers)
        self._background = Background(self._points, in_order, max(1, workers - 1))
        self._require_any(new, max(new, key=worth.__getitem__))
        self._background.limit(workers)
        self._take_for(AHEAD_SECONDS - (time.monotonic() - began))
        if len(new) == self._reasons.total():
            raise PredictionUnavailable(self._reasons.most_common(1)[0][0])
        self._tell(new, time.monotonic() - began)

    def close(self) -> None:
        """End what is predicted in the background; those points are predicted as they come up."""
        if self._background is not None:
            self._background.close()
            self._background = None

    def _take_for(self, seconds: float) -> None:
        """Take what is predicted for so long, at least one group; then go on beside the trials, or end."""
        assert self._background is not None
        until = time.monotonic() + seconds
        waiting = len(self._waiting)
        while not self._background.is_done:
            left = until - time.monotonic()
            if left <= 0 and len(self._waiting) < waiting:
                break
            self._background.wait(max(left, SLICE_SECONDS))
            self._take()
        self._stopped = self._background.error
        beside = workers_beside_trials()
        if self._background.is_done or not beside:
            self._background.finish_group()
            self._take()
            self.close()
        else:
            self._background.limit(beside)

    def _take(self) -> None:
        """Take in what has been predicted in the background; the best of what is near is looked at next."""
        if self._background is None:
            return
        near = []
        for point, found in self._background.take():
            worth = self._waiting.pop(point, None)
            if worth is None:
                self._take_closer_look(point, found)
            elif isinstance(found, Prediction):
                self.know(point, found)
                if self.verdict(point) == "near":
                    near.append((worth, point))
            else:
                self._reasons[found.error] += 1
                self.know(point, None)
        if near:
            near.sort(key=lambda one: -one[0])
            self._background.want([point for _, point in near[:LOOKED_AT_AHEAD]])

    def _take_closer_look(self, point: Point, found: Prediction | PredictionFailure) -> None:
        """Take what was made of a point that something is known of already: its own trace decides."""
        made = self._made.get(point)
        if made is None or made.exact:
            return
        if isinstance(found, PredictionFailure):
            self._undecidable.add(point)
        elif found.exact:
            self._made[point] = found
        self._verdicts.pop(point, None)

    def _worth(self, points: Sequence[Point]) -> dict[Point, float]:
        """How promising each point is before anything is known of it: its speed, where it has room."""
        from autotune.throughput import predicted_speeds

        try:
            speeds = predicted_speeds(self.about.training(), list(points))
            chances = self.chances(points)
        except UsageError as error:
            raise PredictionUnavailable(error.message, error.hint) from error
        return {point: speed * chance for point, speed, chance in zip(points, speeds, chances, strict=True)}

    def _tell(self, points: Sequence[Point], seconds: float) -> None:
        done = [point for point in points if point in self._looked_at]
        out = sum(self.verdict(point) in ("device", "host") for point in done)
        text = f"predicted in {seconds:.0f} s: {out:,} of {len(done):,} do not fit and will not be launched"
        if len(done) < len(points):
            when = "as they come up" if self._background is None else "while trials run"
            text += f"; the other {len(points) - len(done):,} are predicted {when}"
        self._say(text)
        if self._stopped:
            self._say(f"predicting ahead has stopped: {self._stopped}")
        if self._reasons:
            reason, _ = self._reasons.most_common(1)[0]
            self._say(
                f"{self._reasons.total():,} configurations cannot be predicted and are tried like any other: "
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

        self._take()
        verdicts = [self.verdict(point) for point in points]
        known = np.array([CHANCES.get(verdict, np.nan) for verdict in verdicts])
        unknown = np.flatnonzero(np.isnan(known))
        if len(unknown):
            needs = rough_needs(self.about.training(), [points[int(row)] for row in unknown])
            known[unknown] = chance_of_room(needs, [], limit_bytes=self.about.budgets.device_bytes)
        return known

    def decide(self, point: Point) -> bool:
        """Whether a point is to be launched: one near a limit, or not predicted yet, is looked at first."""
        self._take()
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
        return verdict_of(outlook, self.about.budgets, is_decided=outlook.point in self._undecidable)

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
