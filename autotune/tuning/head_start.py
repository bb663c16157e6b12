"""What a study begins with from similar ones: looked up once, kept in the study, given up where it is wrong.

The study keeps which others were used and which of its points were carried over, so that an interrupted
search goes on as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any, Protocol

from autotune.reuse import (
    FirstPoint,
    Judgement,
    KnobEffects,
    Profile,
    Similar,
    Tried,
    first_points,
    judged,
    knob_effects,
)
from autotune.reuse.first_points import MOST_POINTS
from autotune.reuse.observations import speed_of
from autotune.reuse.similarity import LEAST_TRUST
from autotune.tuning.lessons import NOTHING, Taught, explained, is_of_this_training, lessons, misled
from autotune.tuning.stopping import quality_values
from trials.wire import Outcome, Point

if TYPE_CHECKING:
    from autotune.reuse.worth import Worth
    from autotune.study import Record
    from autotune.throughput import Training
    from autotune.throughput.coefficients import Prior

NOTE = "reuse"
# The trial of the search's own choosing that what was carried over is compared with comes second.
OWN_TRIALS = 1
# While so few trials have ended, knobs' effects choose among what the sampler may propose.
FEW_TRIALS = 8
# Below this a study's points are not worth a trial; its speeds cost none.
POINT_TRUST = 0.4
# Fewer candidates need no choosing among.
MANY_CANDIDATES = 20
BETTER_SHARE = 0.5
# A study of the same model that only another budget or length tells from this one is trusted so far.
SAME_TRAINING_TRUST = 0.75
# It has to have measured as much as a search of its own would, and with it this many trials are enough here.
LEAST_KNOWN = 4
LEAST_MEASURED_AGAIN = 3

# What is said of a study whose speeds the model of speed cannot say.
LEFT_OUT = "is left out: its speeds are not what such configurations can have"

Required = Callable[[Point], int | None]
Propose = Callable[[Sequence["Record"], Sequence[Point]], Point]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Carry:
    """What is carried over, each on a switch of its own.

    Attributes:
        points: good points, rescaled, to the front of the queue.
        observations: throughputs, for the model of speed.
        knobs: the order of each knob's values, while little is measured. Off: in `benchmarks/reuse` it gained
            nothing beside the points, and cost trials where the order was another one.
    """

    points: bool = True
    observations: bool = True
    knobs: bool = False


class Keeps(Protocol):
    """Where a head start keeps what it must know again after an interruption: a study."""

    def note(self, key: str) -> Any:
        """The value last kept under a key, or None."""

    def set_note(self, key: str, value: Any) -> None:
        """Keeps a value, in JSON, under a key."""


class HeadStart:
    """What similar studies give to one that is being tuned.

    Attributes:
        similar: the studies, the most trusted first; of them are used those that the model of speed explains.
        carry: what of them is used.
    """

    def __init__(
        self,
        study: Keeps,
        target: Profile,
        similar: Sequence[Similar],
        say: Say,
        carry: Carry | None = None,
        *,
        most: int = MOST_POINTS,
        base: Prior | None = None,
    ) -> None:
        """Use `begin`.

        Args:
            study: that is being tuned; keeps what was carried over.
            target: its profile.
            similar: the studies to learn from; never empty.
            say: told when what was carried over is given up.
            carry: what is used; None: as `Carry` has it.
            most: points to carry over.
            base: prior of the model of speed without other studies; None: the shipped one.
        """
        self.similar = tuple(similar)
        self._left_out: frozenset[str] | None = None
        self.carry = carry or Carry()
        self._study = study
        self._target = target
        self._say = say
        self._told = 1.0
        self._most = most
        self._base = base
        self._lessons: dict[float, Taught] = {}

    def next_point(
        self,
        records: Sequence[Record],
        candidates: Sequence[Point],
        required_bytes: Required,
        training: Training | None = None,
        running: Sequence[Record] = (),
    ) -> Point | None:
        """A point carried over that is worth measuring next; None: the search is to choose by itself.

        Args:
            records: trials of this stage that are over, in order.
            candidates: what may be launched.
            required_bytes: device memory that a candidate is predicted to need; None where nothing is.
            training: what is tuned, on this machine, for the model of speed; None: without it.
            running: trials of this stage that other processes run now.
        """
        self._look_through(training)
        carried = self.carried()
        tried = sum(record.point in carried for record in (*records, *running))
        own = len(records) + len(running) - tried
        # One is measured, then one of the search's own choosing, and if that is no better the others.
        is_turn = own == OWN_TRIALS or (own < OWN_TRIALS and not tried)
        trusted = bool(self.used) and self.used[0].trust >= POINT_TRUST
        if not self.carry.points or not trusted or not is_turn or tried >= self._most:
            return None
        if not self._holds(self.judgement(records)):
            return None
        speed, needed = self._speed(records, candidates, training), self._needed_elsewhere()
        found = first_points(
            self.used,
            candidates,
            self._target,
            lambda point: required_bytes(point) or needed.get(point),
            speed=speed,
        )
        if not found:
            return None
        self._remember(found[0])
        return found[0].point

    def _look_through(self, training: Training | None) -> None:
        """Leave out the studies whose speeds the model of speed cannot say, before a trial is spent on them.

        Args:
            training: what is tuned, on this machine; None: nobody can say.
        """
        if training is None or self._left_out is not None:
            return
        odd = [one.study for one in self.similar if not explained(one, self._target, training, self._base)]
        self._left_out = frozenset(odd)
        if odd:
            self._study.set_note(NOTE, self._note() | {"left_out": odd})
        for study in odd:
            self._say(f"{study} {LEFT_OUT}")

    @property
    def used(self) -> tuple[Similar, ...]:
        """The studies, but for those that were left out."""
        return tuple(one for one in self.similar if one.study not in (self._left_out or ()))

    def _needed_elsewhere(self) -> dict[Point, int]:
        """The memory that points of this very training were measured to need."""
        return {
            record.point: record.result.required_device_bytes
            for one in self.used
            if is_of_this_training(one, self._target)
            for record in one.records
            if record.result is not None and record.result.required_device_bytes is not None
        }

    def first_of_its_own(
        self, records: Sequence[Record], candidates: Sequence[Point], propose: Propose
    ) -> Point | None:
        """What the search would have begun with, while only what was carried over has been measured.

        That is what it is compared with. What the first measurement teaches of its neighbours comes after.

        Args:
            records: trials of this stage, in order: those that are over and those that others run now.
            candidates: what may be launched.
            propose: the sampler's, without other studies.

        Returns:
            None where it would have begun with what was carried over, or has measured more already.
        """
        carried = self.carried()
        tried = [record.point for record in records]
        if not tried or any(point not in carried for point in tried):
            return None
        first = propose([], [*tried, *candidates])
        return first if first in candidates else None

    def preferred(self, records: Sequence[Record], candidates: Sequence[Point]) -> Sequence[Point]:
        """The candidates that a sampler may choose among while little is known: by the knobs' effects.

        Args:
            records: trials of this stage that are over, in order.
            candidates: what may be launched.
        """
        own = [record for record in records if record.point not in self.carried()]
        # The first choice of its own is what the search would have made anyway: the comparison needs it.
        few = len(own) >= OWN_TRIALS and len(records) < FEW_TRIALS and len(candidates) > MANY_CANDIDATES
        if not self.carry.knobs or not few or self.judgement(records).share < 1.0:
            return candidates
        effects = self.effects()
        if not effects.log_ratios:
            return candidates
        ranked = effects.ranked(candidates)
        return ranked[: max(MANY_CANDIDATES, round(BETTER_SHARE * len(ranked)))]

    def effects(self) -> KnobEffects:
        """What the studies taught about each knob."""
        return knob_effects(self.used)

    def taught(self, records: Sequence[Record], training: Training) -> Taught:
        """What the studies teach the model of speed, as far as they are still trusted.

        `NOTHING` until the search has chosen a trial by itself: what was carried over is compared with that.
        The same object as long as nothing changed.

        Args:
            records: trials of this stage that are over, in order.
            training: what is tuned, on this machine.
        """
        self._look_through(training)
        carried = self.carried() if self.carry.points else {}
        if carried and all(record.point in carried for record in records):
            return NOTHING
        found = self._taught(self.judgement(records).share, training)
        measured = {record.point: speed for record in records if (speed := speed_of(record)) is not None}
        words = "" if found is NOTHING else misled(found, measured, training, self._base)
        if not words:
            return found
        self._study.set_note(NOTE, self._note() | {"misled": words})
        self.judgement(records)
        return NOTHING

    def _taught(self, left: float, training: Training) -> Taught:
        """What the studies teach, when so much of the trust is left."""
        if not self.carry.observations or left <= 0.0:
            return NOTHING
        if left not in self._lessons:
            self._lessons[left] = lessons(self.used, left, self._target, training, self._base)
        return self._lessons[left]

    def _speed(
        self, records: Sequence[Record], candidates: Sequence[Point], training: Training | None
    ) -> Callable[[Point], float] | None:
        """The speed of candidates by the model that has learned the studies' and this study's own trials."""
        from autotune.throughput import Belief, Worked
        from autotune.throughput.seen import observations_of, seen_of

        if training is None:
            return None
        taught = self._taught(1.0, training)
        if taught is NOTHING:
            return None
        seen = observations_of(seen_of(record.point, record.result) for record in records)
        prior = taught.prior or self._base
        belief = Belief(Worked(training, candidates), [*taught.known, *seen], prior)
        speeds = dict(zip(belief.points, belief.tokens_per_second, strict=True))
        return lambda point: float(speeds[point])

    def judgement(self, records: Sequence[Record]) -> Judgement:
        """What the measurements leave of the trust; said once where that is less than all."""
        carried, astray = self.carried(), self._note().get("misled")
        found = Judgement(0.0, astray) if astray else judged([_tried(record, carried) for record in records])
        if found.words and self._told > (left := found.share if self._holds(found) else 0.0):
            self._told = left
            lost = "is not used any more" if not self._holds(found) else f"counts {found.share:.0%}"
            self._say(f"what was learned elsewhere {lost}: {found.words}")
        if round(found.share, 3) != self._note().get("left", 1.0):
            self._study.set_note(NOTE, self._note() | {"left": round(found.share, 3), "words": found.words})
        return found

    def prices(self, records: Sequence[Record]) -> dict[tuple[str, Any], str] | None:
        """What is known of the same model under another budget or length, where the trials agree with it.

        Args:
            records: trials of this stage that are over, in order.

        Returns:
            The values of the quality knobs that such studies measured, with the study that shows what each
            costs; None where there is no such study, nothing of it was tried, or something disagreed.
        """
        known = [one for one in self.used if self._shows_prices(one)]
        carried = self.carried()
        ran = [record for record in records if speed_of(record) is not None]
        compared = {record.point in carried for record in ran} == {True, False}
        if not known or not compared or self.judgement(records).share < 1.0:
            return None
        return {
            value: one.study
            for one in reversed(known)
            for record in one.records
            if record.result is not None and record.result.outcome is Outcome.OK
            for value in quality_values(record.point)
        }

    def _shows_prices(self, one: Similar) -> bool:
        """Whether a search of the same model and method measured as much as one here would."""
        theirs, ours = one.profile, self._target
        same = (theirs.model_digest, theirs.method) == (ours.model_digest, ours.method)
        measured = sum(speed_of(record) is not None for record in one.records)
        return same and one.trust >= SAME_TRAINING_TRUST and measured >= LEAST_KNOWN

    def keep_worth(self, worth: Worth) -> None:
        """Keeps what the head start was worth."""
        self._study.set_note(NOTE, self._note() | {"worth": worth.as_json()})

    def carried(self) -> dict[Point, float]:
        """The points that were carried over, with the speed that was expected of each; ratios count."""
        return {
            Point.model_validate(one["point"]): float(one["expected"])
            for one in self._note().get("carried", [])
        }

    def _holds(self, found: Judgement) -> bool:
        most = max((one.trust for one in self.used), default=0.0)
        return bool(self.used) and found.share * most >= min(LEAST_TRUST, most)

    def _remember(self, first: FirstPoint) -> None:
        note = self._note()
        known = note.get("carried", [])
        point = first.point.model_dump(mode="json")
        if all(one["point"] != point for one in known):
            one = {"point": point, "expected": first.expected, "study": first.study}
            self._study.set_note(NOTE, note | {"carried": [*known, one]})

    def _note(self) -> dict[str, Any]:
        return dict(self._study.note(NOTE) or {})


def _tried(record: Record, carried: Mapping[Point, float]) -> Tried:
    """A trial as the judgement sees it."""
    result = record.result
    low = result.tokens_per_second_low if result else None
    high = result.tokens_per_second_high if result else None
    noise = log(high / low) / 2 if low and high and high >= low else 0.0
    return Tried(record.point, carried.get(record.point), speed_of(record), noise)


def points_to_carry(sampler: str, carry: Carry) -> int:
    """How many points go to the front of the queue.

    A sampler that learns the studies' speeds knows better where to go on after the first.
    """
    return 1 if sampler == "physics" and carry.observations else MOST_POINTS
