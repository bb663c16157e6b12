"""One search on a table, from nothing or with a head start, by the code that `autotune run` uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from autotune.reuse import Similar, similarity
from autotune.reuse.virtual import VirtualSearch, virtual_search
from autotune.samplers import make_sampler
from autotune.study import Record
from autotune.tuning.head_start import Carry, HeadStart
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
    proposer = make_sampler(sampler, table.points, seed)
    return virtual_search(table.known, proposer.propose, table.points, most)


def with_head_start(pair: Pair, sampler: str, seed: int, carry: Carry) -> VirtualSearch:
    """The same search after the source was tuned with another seed."""
    target = pair.target
    head_start = HeadStart(Memory(), target.profile, [studied(pair, sampler, seed + 1000)], _silent, carry)
    proposer = make_sampler(sampler, target.points, seed)

    def choose(records: Sequence[Record], candidates: Sequence[Point]) -> Point:
        carried = head_start.next_point(records, candidates, target.required_bytes)
        if carried is not None:
            return carried
        return proposer.propose(records, head_start.preferred(records, candidates))

    return virtual_search(target.known, choose, target.points, MOST_TRIALS)


def studied(pair: Pair, sampler: str, seed: int) -> Similar:
    """What the pair's source teaches once it was tuned."""
    source = pair.source
    proposer = make_sampler(sampler, source.points, seed)
    records: list[Record] = []
    left = list(source.points)
    while left and len(records) < SOURCE_TRIALS:
        point = proposer.propose(records, left)
        left.remove(point)
        records.append(Record(len(records), point, source.known(point), None, NOW, NOW))
    found = similarity(source.profile, pair.target.profile)
    return Similar(source.name, found.trust, found.why, source.profile, tuple(records))


def _silent(text: str) -> None:
    pass
