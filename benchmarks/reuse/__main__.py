"""`python -m benchmarks.reuse`: trials to near the optimum with a head start and without, as Markdown."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from autotune.reuse.virtual import WITHIN, VirtualSearch
from autotune.tuning.head_start import Carry
from benchmarks.reuse.pairs import KINDS, Kind, Pair, pairs_of
from benchmarks.reuse.replay import MOST_TRIALS, from_nothing, studied, with_head_start
from benchmarks.reuse.tables import FOLDERS, read_tables

RESULTS = Path(__file__).parents[1] / "results" / "reuse.md"
SEEDS = 10
SWITCHES = {
    "as by default": Carry(),
    "points": Carry(points=True, observations=False, knobs=False),
    "observations": Carry(points=False, observations=True, knobs=False),
    "knobs": Carry(points=False, observations=False, knobs=True),
}


@dataclass(frozen=True)
class Trials:
    """How many trials searches took, one per seed; what did not arrive counts as one more than there are.

    Attributes:
        near: until one was near the fastest.
        tied: until then, or until one could not be told from the fastest.
    """

    near: tuple[int, ...]
    tied: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One pair, over all seeds.

    Attributes:
        pair: which.
        trust: in the source.
        without: trials from nothing.
        carried: trials with a head start, by what was carried over.
    """

    pair: Pair
    trust: float
    without: Trials
    carried: dict[str, Trials]


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reuse", description=__doc__)
    parser.add_argument("--tables", type=Path, nargs="+", default=list(FOLDERS), help="folders of tables")
    parser.add_argument("--sampler", default="physics")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    tables = read_tables(chosen.tables)
    begun = time.monotonic()
    rows = []
    for pair in pairs_of(tables):
        rows.append(row_of(pair, chosen.sampler, chosen.seeds))
        print(line(rows[-1]), flush=True)
    text = report(rows, chosen.sampler, chosen.seeds, time.monotonic() - begun)
    chosen.output.parent.mkdir(exist_ok=True)
    chosen.output.write_text(text)
    print(text)


def row_of(pair: Pair, sampler: str, seeds: int) -> Row:
    """Replays a pair."""
    without = trials_of([from_nothing(pair.target, sampler, seed) for seed in range(seeds)], pair)
    carried = {
        name: trials_of([with_head_start(pair, sampler, seed, carry) for seed in range(seeds)], pair)
        for name, carry in SWITCHES.items()
    }
    trust = fmean(studied(pair, sampler, seed).trust for seed in range(1))
    return Row(pair, trust, without, carried)


def trials_of(searches: Sequence[VirtualSearch], pair: Pair) -> Trials:
    """What searches of a pair's target took."""
    return Trials(
        near=tuple(counted(one.trials, pair) for one in searches),
        tied=tuple(counted(trials_to_a_tie(one, pair), pair) for one in searches),
    )


def trials_to_a_tie(search: VirtualSearch, pair: Pair) -> int | None:
    """Trials, or those to a point that the clock cannot tell from the fastest, if that came before."""
    tied = (n for n, record in enumerate(search.records, start=1) if pair.target.is_best(record.point))
    return next(tied, search.trials)


def counted(trials: int | None, pair: Pair) -> int:
    """The trials; where the optimum was not reached, one more than were allowed."""
    return min(MOST_TRIALS, len(pair.target.points)) + 1 if trials is None else trials


def report(rows: Sequence[Row], sampler: str, seeds: int, seconds: float) -> str:
    """The results as Markdown."""
    lines = [
        "# Trials with a head start and without",
        "",
        f"`python -m benchmarks.reuse --sampler {sampler} --seeds {seeds}`: measured trials until the search",
        f"is within {WITHIN:.0%} of the target's fastest point; median (mean) over {seeds} seeds.",
        f"It took {seconds:.0f} s. The source was tuned with the same sampler and another seed. Each switch",
        "alone: good points at the front of the queue; throughputs for the model of speed; the knobs' order",
        "while little is measured.",
        "",
        "| pair | source | target | points | trust | without | " + " | ".join(SWITCHES) + " |",
        "| --- | --- | --- | ---: | ---: | ---: |" + " ---: |" * len(SWITCHES),
    ]
    lines += [line(row) for kind in KINDS for row in rows if row.pair.kind == kind]
    lines += [
        *("", *summary(rows), ""),
        "The same, or to a point that the clock cannot tell from the fastest one (by the rule of",
        *("`autotune run`), if that came before:", "", *summary(rows, tied=True)),
    ]
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row], *, tied: bool = False) -> list[str]:
    """A table of all kinds of pairs.

    Args:
        rows: all pairs.
        tied: whether trials are counted to a tie with the fastest.
    """
    return [
        "| pairs | | without | " + " | ".join(SWITCHES) + " |",
        "| --- | ---: | ---: |" + " ---: |" * len(SWITCHES),
        *(total(kind, [row for row in rows if row.pair.kind == kind], tied=tied) for kind in KINDS),
    ]


def line(row: Row) -> str:
    """One pair."""
    pair = row.pair
    figures = [cell(trials.near) for trials in (row.without, *row.carried.values())]
    return (
        f"| {pair.kind} | {pair.source.name} | {pair.target.name} | {len(pair.target.points)} | "
        f"{row.trust:.2f} | " + " | ".join(figures) + " |"
    )


def total(kind: Kind, rows: Sequence[Row], *, tied: bool = False) -> str:
    """All pairs of a kind."""
    if not rows:
        return f"| {kind} | 0 | " + " | ".join("" for _ in range(len(SWITCHES) + 1)) + " |"
    by_way = [[row.without for row in rows], *([row.carried[name] for row in rows] for name in SWITCHES)]
    counts = [[count for one in way for count in (one.tied if tied else one.near)] for way in by_way]
    return f"| {kind} | {len(rows)} | " + " | ".join(map(cell, counts)) + " |"


def cell(trials: Sequence[int]) -> str:
    """Median and mean."""
    return f"{median(trials):g} ({fmean(trials):.1f})"


if __name__ == "__main__":
    main()
