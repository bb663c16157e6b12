"""What a study begins with from similar ones: looked up once, kept in the study, given up where it is wrong.

The study keeps which others were used and which of its points were carried over, so that an interrupted
search goes on as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from autotune.errors import AutotuneError
from autotune.reuse import (
    FirstPoint,
    Judgement,
    KnobEffects,
    PriorObservation,
    Profile,
    Similar,
    Tried,
    first_points,
    judged,
    knob_effects,
    prior_observations,
    profile_of,
)
from autotune.reuse.first_points import MOST_POINTS
from autotune.reuse.observations import speed_of
from autotune.reuse.similarity import LEAST_TRUST
from trials.wire import Point

if TYPE_CHECKING:
    from autotune.reuse.survey import Wanted
    from autotune.study import Record, Study
    from autotune.throughput import Training
    from autotune.throughput.coefficients import Prior
    from autotune.tuning.task import Task

NOTE = "reuse"
# The trial of the search's own choosing that what was carried over is compared with comes second.
OWN_TRIALS = 1
# While so few trials have ended, knobs' effects choose among what the sampler may propose.
FEW_TRIALS = 8
# Fewer candidates need no choosing among.
MANY_CANDIDATES = 20
BETTER_SHARE = 0.5

Required = Callable[[Point], int | None]
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
        similar: the studies, the most trusted first.
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
        self.carry = carry or Carry()
        self._study = study
        self._target = target
        self._say = say
        self._told = ""
        self._most = most
        self._base = base
        self._priors: dict[float, Prior | None] = {}

    def next_point(
        self, records: Sequence[Record], candidates: Sequence[Point], required_bytes: Required
    ) -> Point | None:
        """A point carried over that is worth measuring next; None: the search is to choose by itself.

        Args:
            records: trials of this stage that are over, in order.
            candidates: what may be launched.
            required_bytes: device memory that a candidate is predicted to need; None where nothing is.
        """
        carried = self.carried()
        tried = sum(record.point in carried for record in records)
        own = len(records) - tried
        # One is measured, then one of the search's own choosing, and if that is no better the others.
        is_turn = own == OWN_TRIALS or (own < OWN_TRIALS and not tried)
        if not self.carry.points or not is_turn or tried >= self._most:
            return None
        if not self._holds(self.judgement(records)):
            return None
        found = first_points(self.similar, candidates, self._target, required_bytes)
        if not found:
            return None
        self._remember(found[0])
        return found[0].point

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
        return knob_effects(self.similar)

    def observations(self, records: Sequence[Record] = ()) -> tuple[PriorObservation, ...]:
        """What the studies measured of speed, weighed by what the records leave of the trust."""
        if not self.carry.observations:
            return ()
        left = self.judgement(records).share
        similar = [
            Similar(one.study, one.trust * left, one.why, one.profile, one.records) for one in self.similar
        ]
        return prior_observations(similar, self._target) if left > 0 else ()

    def prior(self, records: Sequence[Record], training: Training) -> Prior | None:
        """What the studies teach of the model of speed's coefficients, as far as they are still trusted.

        None until the search has chosen a trial by itself: what was carried over is compared with that.

        Args:
            records: trials of this stage that are over, in order.
            training: what is tuned, on this machine.
        """
        carried = self.carried() if self.carry.points else {}
        if carried and all(record.point in carried for record in records):
            return None
        observations = self.observations(records)
        trust = observations[0].weight if observations else 0.0
        if trust not in self._priors:
            from autotune.reuse.learned_prior import learned_prior

            self._priors[trust] = learned_prior(observations, training, self._base)
        return self._priors[trust]

    def judgement(self, records: Sequence[Record]) -> Judgement:
        """What the measurements leave of the trust; said once where that is less than all."""
        carried = self.carried()
        found = judged(
            [Tried(record.point, carried.get(record.point), speed_of(record)) for record in records]
        )
        if found.words and found.words != self._told:
            self._told = found.words
            lost = "is not used any more" if not self._holds(found) else f"counts {found.share:.0%}"
            self._say(f"what was learned elsewhere {lost}: {found.words}")
        if round(found.share, 3) != self._note().get("left", 1.0):
            self._study.set_note(NOTE, self._note() | {"left": round(found.share, 3), "words": found.words})
        return found

    def carried(self) -> dict[Point, float]:
        """The points that were carried over, with the speed that was expected of each; ratios count."""
        return {
            Point.model_validate(one["point"]): float(one["expected"])
            for one in self._note().get("carried", [])
        }

    def _holds(self, found: Judgement) -> bool:
        return found.share * self.similar[0].trust >= min(LEAST_TRUST, self.similar[0].trust)

    def _remember(self, first: FirstPoint) -> None:
        note = self._note()
        known = note.get("carried", [])
        point = first.point.model_dump(mode="json")
        if all(one["point"] != point for one in known):
            one = {"point": point, "expected": first.expected, "study": first.study}
            self._study.set_note(NOTE, note | {"carried": [*known, one]})

    def _note(self) -> dict[str, Any]:
        return dict(self._study.note(NOTE) or {})


def begin(study: Study, task: Task, storage_url: str, say: Say, detail: Say) -> HeadStart | None:
    """The head start of a study that is about to be tuned; None where there is nothing to learn from.

    Args:
        study: that is tuned; one that has trials keeps to the studies it began with.
        task: what is tuned.
        storage_url: where to look for similar studies.
        say: told which studies are used, and how far each is trusted.
        detail: told what was looked at.

    Raises:
        UsageError: a study that the user named is not there, or cannot be learned from.
        EnvironmentProblem: the storage does not work.
    """
    from autotune.reuse.survey import similar_studies
    from autotune.tuning.handover import measured_on

    wanted: Wanted = task.request.reuse
    known: Any = study.note(NOTE)
    if wanted == "off" or (known is None and any(r.result is not None for r in study.records())):
        return None
    target = profile_of(task.inputs, task.model, measured_on(task.machine))
    if known is not None:
        wanted = tuple(one["study"] for one in known["studies"])
    try:
        found = similar_studies(storage_url, target, study.name, wanted, gone_too=known is not None)
    except AutotuneError as error:
        if known is None and isinstance(task.request.reuse, tuple):
            raise
        say(f"nothing is carried over from other studies: {error.message}")
        return None
    for name, why in found.passed_over.items():
        (say if isinstance(task.request.reuse, tuple) else detail)(f"nothing is learned from {name}: {why}")
    if not found.similar:
        detail(f"no study to learn from among {found.looked_at}")
        return None
    for one in found.similar:
        say(f"learning from {one.study}, trusted {one.trust:.0%}: {one.why}")
    if known is None:
        study.set_note(NOTE, {"studies": [one.as_json() for one in found.similar]})
    most = points_to_carry(task.request.sampler, Carry())
    return HeadStart(study, target, found.similar, say, most=most)


def points_to_carry(sampler: str, carry: Carry) -> int:
    """How many points go to the front of the queue.

    A sampler that learns the studies' speeds knows better where to go on after the first.
    """
    return 1 if sampler == "physics" and carry.observations else MOST_POINTS


def check_named(task: Task, storage_url: str) -> None:
    """Refuses studies that were named and cannot be used, before anything is created.

    Raises:
        UsageError: one is not there, or is the study itself.
    """
    from autotune.reuse.survey import similar_studies
    from autotune.tuning.handover import measured_on

    wanted = task.request.reuse
    if isinstance(wanted, tuple):
        target = profile_of(task.inputs, task.model, measured_on(task.machine))
        similar_studies(storage_url, target, task.request.study or task.inputs.study_name(), wanted)


def reuse_json(study: Study) -> dict[str, Any]:
    """What `autotune run --json` says of the studies that were used.

    `reuse`: one object per study (`study`, `trust`, `why`); `reuse_left`: the share of that trust which the
    first measurements left, and `reuse_disagreement`, in words, where that is less than all.
    """
    note: Any = study.note(NOTE) or {}
    return {
        "reuse": list(note.get("studies", [])),
        "reuse_left": note.get("left", 1.0) if note else None,
        "reuse_disagreement": note.get("words") or None,
    }
