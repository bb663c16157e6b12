"""One search on a table, from nothing or with a head start, by the code that `autotune run` uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from autotune.reuse import Similar, similarity
from autotune.reuse.virtual import VirtualSearch, virtual_search
from autotune.samplers import Knowledge, Proposer, make_sampler
from autotune.study import Record
from autotune.tuning.head_start import Carry, HeadStart, points_to_carry
from autotune.tuning.lessons import NOTHING, Taught
from benchmarks.reuse.pairs import Pair
from benchmarks.reuse.tables import Table
from trials.wire import Point

MOST_TRIALS = 40
# A source was tuned, not measured as a whole.
SOURCE_TRIALS = 20
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Memory:
    """What a study would keep."""

    def __init__(self) -> None:
        self._notes: dict[str, Any] = {}

    def note(self, key: str) -> Any:
        """The value, or None."""
        return self._notes.get(key)

    def set_note(self, key: str, value: Any) -> None:
        """Keep it."""
        self._notes[key] = value


def from_nothing(table: Table, sampler: str, seed: int, most: int = MOST_TRIALS) -> VirtualSearch:
    """A search that knows nothing of other studies."""
    return virtual_search(table.known, _proposer(table, sampler, seed).propose, table.points, most)


def with_head_start(pair: Pair, sampler: str, seed: int, carry: Carry) -> VirtualSearch:
    """The same search after the source was tuned with another seed."""
    target = pair.target
    similar = [studied(pair, sampler, seed + 1000)]
    head_start = HeadStart(
        Memory(),
        target.profile,
        similar,
        _silent,
        carry,
        most=points_to_carry(sampler, carry),
        base=target.prior,
    )
    known, proposer = NOTHING, _proposer(target, sampler, seed)

    def choose(records: Sequence[Record], candidates: Sequence[Point]) -> Point:
        nonlocal known, proposer
        carried = head_start.next_point(records, candidates, target.required_bytes, target.training)
        if carried is not None:
            return carried
        taught = head_start.taught(records, target.training)
        if taught is not known:
            known, proposer = taught, _proposer(target, sampler, seed, taught)
        own = head_start.first_of_its_own(records, candidates, proposer.propose)
        return own or proposer.propose(records, head_start.preferred(records, candidates))

    return virtual_search(target.known, choose, target.points, MOST_TRIALS)


def studied(pair: Pair, sampler: str, seed: int) -> Similar:
    """What the pair's source teaches once it was tuned."""
    source = pair.source
    proposer = _proposer(source, sampler, seed)
    records: list[Record] = []
    left = list(source.points)
    while left and len(records) < SOURCE_TRIALS:
        point = proposer.propose(records, left)
        left.remove(point)
        records.append(Record(len(records), point, source.known(point), None, NOW, NOW))
    found = similarity(source.profile, pair.target.profile)
    return Similar(source.name, found.trust, found.why, source.profile, tuple(records))


def _proposer(table: Table, sampler: str, seed: int, taught: Taught | None = None) -> Proposer:
    prior, known = (taught.prior, taught.known) if taught else (None, ())
    knowledge = Knowledge(table.training, lambda points: np.ones(len(points)), prior or table.prior, known)
    return make_sampler(sampler, table.points, seed, knowledge)


def _silent(text: str) -> None:
    pass
