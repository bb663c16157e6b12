"""Which table teaches which: the kinds of pairs that reuse must stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Literal

from benchmarks.reuse.tables import Table

Kind = Literal["near", "far", "budget", "seq_len", "adversarial"]
KINDS: tuple[Kind, ...] = ("near", "far", "budget", "seq_len", "adversarial")
# With fewer points there is nothing to search.
LEAST_POINTS = 8


@dataclass(frozen=True)
class Pair:
    """A training that was tuned, and one that is about to be.

    Attributes:
        kind: how they differ.
        source: that was tuned.
        target: that is about to be.
    """

    kind: Kind
    source: Table
    target: Table


def pairs_of(tables: Sequence[Table]) -> Iterator[Pair]:
    """All pairs of the tables.

    near: the same architecture, another size. far: another architecture. budget: the same model in less
    memory, and back. seq_len: the same model at another length. adversarial: a source like the target in
    everything, whose preferences are the reverse.
    """
    for table in tables:
        for other in budgets_of(table):
            yield Pair("budget", table, other)
            yield Pair("budget", other, table)
        yield Pair("adversarial", table.reversed(), table)
    for source in tables:
        for target in tables:
            kind = _kind(source, target)
            if kind is not None:
                yield Pair(kind, source, target)


def budgets_of(table: Table) -> list[Table]:
    """The table in so little memory that about half of its points fit."""
    needs = [need for point in table.points if (need := table.required_bytes(point)) is not None]
    if len(needs) < 2:
        return []
    half = table.under(int(quantiles(needs, n=2)[0]))
    return [half] if len(half.points) >= LEAST_POINTS else []


def _kind(source: Table, target: Table) -> Kind | None:
    ours, theirs = target.profile, source.profile
    if source is target or (ours.device, ours.gpu_name) != (theirs.device, theirs.gpu_name):
        return None
    if ours.model_digest == theirs.model_digest:
        return "seq_len" if ours.seq_len != theirs.seq_len else None
    if ours.seq_len != theirs.seq_len:
        return None
    return "near" if ours.family == theirs.family else "far"
