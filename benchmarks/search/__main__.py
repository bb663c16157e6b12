"""`python -m benchmarks.search` (`make bench-search`): every sampler replayed on every table, as Markdown.

For each table the coefficients of ours are fitted on everything but that table and whatever else was measured
of its model and method. A table without a budget of its own is replayed under several.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from autotune.sizes import format_size
from autotune.throughput import Belief, Worked
from autotune.throughput.coefficients import Prior
from benchmarks.search.fit import all_sources, fit_prior
from benchmarks.search.replay import MOST_TRIALS, UNTIL, Case, Replay, replay
from benchmarks.search.table import FOLDER, Table, read_tables

RESULTS = Path(__file__).parents[1] / "results" / "search.md"
SAMPLERS = ("physics", "tpe", "gp", "random", "grid")
SEEDS = 30
SHARES = (0.05, 0.02, 0.01)
REGRETS_AFTER = (5, 10, 20, 40)
GIB = 2**30
# Of a table without a budget of its own: those at which the best is ranked, and those that are replayed.
BUDGETS = tuple(size * GIB for size in (12, 16, 24, 32, 40, 48, 64, 80))
REPLAYED_BUDGETS = frozenset(size * GIB for size in (16, 24, 40, 80))
FEWEST_POINTS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--tables", type=Path, default=FOLDER)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=SAMPLERS)
    chosen = parser.parse_args(arguments)
    parts = [_heading(chosen.seeds)]
    for table in read_tables(chosen.tables):
        print(table.name, flush=True)
        prior = fit_prior(all_sources(without=table), table.rates.device)
        parts.append(_table_text(table, prior))
        for case in _cases(table):
            if table.inputs["budget_bytes"] is None and case.budget_bytes not in REPLAYED_BUDGETS:
                continue
            replays = {}
            for sampler in chosen.samplers:
                begun = time.monotonic()
                replays[sampler] = [replay(case, sampler, seed, prior) for seed in range(chosen.seeds)]
                print(
                    f"  {format_size(case.budget_bytes)} {sampler} {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
            parts.append(_case_text(case, replays))
    chosen.output.write_text("\n\n".join(parts) + "\n")
    print(chosen.output)


def _cases(table: Table) -> Iterator[Case]:
    """The table under its budget, or under several: where enough fits, and more than under the one before."""
    own = table.inputs["budget_bytes"]
    fitted = FEWEST_POINTS - 1
    for budget in (own,) if own is not None else BUDGETS:
        case = Case(table, budget)
        if len(case.points) > fitted:
            fitted = len(case.points)
            yield case


def _heading(seeds: int) -> str:
    return f"""# Search: samplers replayed on recorded tables

`make bench-search`: every sampler with {seeds} seeds, at most {MOST_TRIALS} trials. A trial's throughput is
the table's, disturbed as its interval says; its seconds are building (where the last engine was another one)
and its steps. All samplers share the pruning: points predicted not to fit are no candidates. Regret: by how
much the throughput of what would be chosen is below the best of the table. To a tie: until what would be
chosen cannot be told from the best by the rule of `autotune run`: within 1 %, or within 10 % with intervals
that overlap. Each cell: median over the seeds / worst tenth; `-`: not within {MOST_TRIALS} trials."""


def _table_text(table: Table, prior: Prior) -> str:
    measured, inputs = table.measured, table.inputs
    points = list(measured)
    belief = Belief(Worked(table.training, points), prior=prior)
    off = np.log([measured[point] for point in points]) - belief.mean
    ranks = [_rank_of_best(case, prior) for case in _cases(table)]
    first = sum(rank == 1 for rank in ranks)
    lines = [
        f"## {table.name}",
        f"{inputs['model']['name']}, {inputs['method']}, {inputs['seq_len']} tokens, {inputs['gpu']}: "
        f"{len(points)} points measured. {inputs.get('note', '')}".strip(),
        f"Before anything of this table is known (coefficients fitted on everything else): throughput off by "
        f"{np.median(np.abs(np.expm1(off))):.1%} in the median; the measured best is ranked "
        f"{', '.join(map(str, ranks))} ({first} of {len(ranks)} times first).",
    ]
    return "\n\n".join(lines)


def _rank_of_best(case: Case, prior: Prior) -> int:
    measured = case.table.measured
    points = [point for point in case.points if point in measured]
    speeds = Belief(Worked(case.table.training, points), prior=prior).tokens_per_second
    best = max(range(len(points)), key=lambda index: measured[points[index]])
    return 1 + int((speeds > speeds[best]).sum())


def _case_text(case: Case, replays: dict[str, list[Replay]]) -> str:
    head = ["sampler"]
    head += [*(f"trials to {share:.0%}" for share in SHARES), "to a tie"]
    head += [f"seconds to {share:.0%}" for share in SHARES]
    head += ["OOMs", *(f"regret after {count}" for count in REGRETS_AFTER)]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for sampler, found in replays.items():
        row = [sampler]
        row += [_spread([one.trials_to(share) for one in found], "{:.0f}".format) for share in SHARES]
        row.append(_spread([one.trials_to_a_tie() for one in found], "{:.0f}".format))
        row += [_spread([one.seconds_to(share) for one in found], "{:.0f}".format) for share in SHARES]
        row.append(f"{median(one.ooms for one in found):.0f}")
        row += [_regret(found, count) for count in REGRETS_AFTER]
        rows.append(row)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    title = f"### {format_size(case.budget_bytes)}: {len(case.points)} points, best {case.best:,.0f} tokens/s"
    return "\n".join([title, "", *lines, *_stopping(replays.get("physics", []))])


def _regret(found: Sequence[Replay], count: int) -> str:
    return _spread([one.regrets[min(count, len(one.regrets)) - 1] for one in found], "{:.1%}".format)


def _spread(values: Sequence[float | None], words: Callable[[float], str]) -> str:
    """Median and worst tenth; what was not reached counts as the worst."""
    ordered = sorted(float("inf") if value is None else float(value) for value in values)
    shown = [ordered[(len(ordered) - 1) // 2], ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]]
    return " / ".join("-" if value == float("inf") else words(value) for value in shown)


def _stopping(found: Sequence[Replay]) -> list[str]:
    """How `--until` would have ended ours, and whether it was right to."""
    ended = [one for one in found if one.stopped_after is not None]
    if not ended:
        return []
    regrets = [one.regrets[(one.stopped_after or 1) - 1] for one in ended]
    beaten = sum(one.beaten for one in ended) / len(ended)
    thought = sum(one.left.beaten for one in ended if one.left) / len(ended)
    trials = _spread([one.stopped_after for one in ended], "{:.0f}".format)
    seconds = _spread([one.seconds[(one.stopped_after or 1) - 1] for one in ended], "{:.0f}".format)
    left = f"an unmeasured point faster by over {UNTIL:.0%} was left in {beaten:.0%}, thought {thought:.0%}"
    return [
        "",
        f"`--until {UNTIL:.0%}` ends {len(ended)} of {len(found)} searches, after {trials} trials and "
        f"{seconds} s, with a regret of {_spread(regrets, '{:.1%}'.format)}; {left}.",
    ]


if __name__ == "__main__":
    main()
