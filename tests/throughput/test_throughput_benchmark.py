"""The benchmark judges samplers on tables that their coefficients were not fitted on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from recorded import GIB, grid, unseen_prior

from autotune.running import OutsideShare, inspect_machine
from autotune.throughput import Belief, Worked
from autotune.throughput.coefficients import INDEX, shipped_prior
from benchmarks.search.fit import all_sources
from benchmarks.search.record import Wanted, covering_order, fastest_of, on_machine
from benchmarks.search.replay import Case, replay
from benchmarks.search.table import FOLDER, are_tied, read_table
from trials.wire import Outcome, Phase, Point, TrialResult


def test_a_table_and_whatever_else_was_measured_of_its_training_is_left_out_of_its_fit() -> None:
    model = grid().model.name
    left_in = [source for source in all_sources(without=grid()) if source.training.model.name == model]
    assert not [point for source in left_in for point in source.points if point.method == "lora"]
    assert len(all_sources()) > len(all_sources(without=grid())) > 80


def test_fitted_coefficients_are_near_one_for_they_mean_something() -> None:
    coefficients = np.exp(shipped_prior("cuda").mean)
    assert (coefficients > 0.5).all() and (coefficients < 2.0).all()
    assert coefficients[INDEX["matmul"]] == pytest.approx(1.2, abs=0.2)
    # Leaving a table out moves none by as much as a factor of two.
    assert np.abs(unseen_prior().mean - shipped_prior("cuda").mean).max() < np.log(2)


def test_ours_finds_the_best_of_a_table_never_seen_in_a_few_trials() -> None:
    case = Case(grid(), 40 * GIB)
    found = [replay(case, "physics", seed, unseen_prior(), trials=8) for seed in range(5)]
    assert all((one.trials_to(0.01) or 99) <= 4 for one in found)
    by_chance = [replay(case, "random", seed, unseen_prior(), trials=8) for seed in range(5)]
    assert np.mean([one.regrets[3] for one in found]) < 0.2 * np.mean([one.regrets[3] for one in by_chance])


def test_a_replay_repeats_and_counts_building_once_per_build() -> None:
    case = Case(grid(), 24 * GIB)
    one, again = (replay(case, "physics", 3, unseen_prior(), trials=5) for _ in range(2))
    assert one == again
    # All points of the grid share a build: eight seconds once, then a fraction of a second.
    took = np.diff([0.0, *one.seconds])
    assert took[0] > 8.0
    steps = [second - 8.0 if index == 0 else second for index, second in enumerate(took)]
    assert all(0 < value < 8.0 for value in steps)


def test_what_is_recorded_fits_with_the_machines_own_share_outside_the_allocator(tmp_path: Path) -> None:
    machine = inspect_machine("cpu")
    machine = dataclasses.replace(machine, device="cuda", gpu_name="NVIDIA H200")
    outside = OutsideShare(machine, tmp_path)
    wanted = Wanted(Point(), 10 * GIB, 2 * GIB)
    # Nothing is known of the machine: the shipped share stays.
    assert on_machine(wanted, outside, 10 * GIB) == wanted
    outside.learn(
        Point(),
        TrialResult(
            trial_id="t", outcome=Outcome.OK, phase=Phase.LATER_STEP, outside_allocator_bytes=3 * GIB
        ),
    )
    assert on_machine(wanted, outside, 10 * GIB) is None
    assert on_machine(wanted, outside, 11 * GIB) == Wanted(Point(), 11 * GIB, 3 * GIB)


def test_points_are_recorded_a_few_of_each_build_at_a_time_spread_over_the_space() -> None:
    points = [
        Point(micro_batch_size=size, checkpoint_fraction=share, lora_rank=rank, zero_stage=stage)
        for size in range(1, 11)
        for share in (0.0, 0.5, 1.0)
        for rank in (16, 32)
        for stage in (0, 2)
    ]
    order = covering_order(points, 5)
    assert sorted(map(repr, order)) == sorted(map(repr, points))
    rounds = [order[start : start + 20] for start in range(0, len(order), 20)]
    for first in rounds:
        runs = [first[start : start + 5] for start in range(0, 20, 5)]
        assert [len({point.build for point in run}) for run in runs] == [1, 1, 1, 1]
        assert len({run[0].build for run in runs}) == 4
    # Five of the thirty points of a build already reach from small to large.
    sizes = [point.micro_batch_size for point in order[:5]]
    assert min(sizes) <= 3 and max(sizes) >= 8


def test_the_fastest_of_a_table_are_measured_again_and_the_later_line_counts(tmp_path: Path) -> None:
    points = [Point(micro_batch_size=size) for size in (1, 2, 4, 8)]
    speeds = (500.0, 970.0, 1000.0, 860.0)
    lines = [
        {"point": point.model_dump(mode="json"), "outcome": "ok", "tokens_per_second": speed}
        | {"setup_seconds": 5.0 if point == points[0] else None, "measure_seconds": 1.5}
        for point, speed in zip(points, speeds, strict=True)
    ]
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"model": {}}, *lines])) + "\n")
    wanted = [Wanted(point, None) for point in points]
    assert [one.point for one in fastest_of(path, wanted)] == [points[2], points[1]]

    with path.open("a") as output:
        again = {"tokens_per_second": 940.0, "measure_seconds": 6.0, "setup_seconds": None}
        output.write(json.dumps({**lines[2], **again}) + "\n")
    row = read_table(path).rows[points[2]]
    assert (row.tokens_per_second, row.measure_seconds) == (940.0, 1.5)
    assert [one.point for one in fastest_of(path, wanted)] == [points[1]]


@pytest.mark.parametrize(
    ("speed", "low", "high", "tied"),
    [
        (1000.0, 990.0, 1010.0, True),
        (979.0, 978.9, 979.1, False),
        (960.0, 950.0, 981.0, True),  # overlapping
        (960.0, 955.0, 965.0, False),
        (890.0, 700.0, 1200.0, False),  # too far to be a tie, however noisy
        (None, None, None, False),
    ],
)
def test_a_point_is_tied_with_the_best_by_the_rule_of_the_product(
    speed: float | None, low: float | None, high: float | None, tied: bool
) -> None:
    def result(speed: float | None, low: float | None, high: float | None) -> TrialResult:
        return TrialResult(
            trial_id="",
            outcome=Outcome.OK if speed else Outcome.OOM,
            phase=Phase.LATER_STEP,
            tokens_per_second=speed,
            tokens_per_second_low=low,
            tokens_per_second_high=high,
        )

    assert are_tied(result(speed, low, high), result(1000.0, 980.0, 1020.0)) is tied
    # Within 1 % it is a tie however sure both are.
    assert are_tied(result(991.0, 990.9, 991.1), result(1000.0, 999.9, 1000.1))


@pytest.mark.parametrize("name", ["llama2-7b_any", "qwen2.5-0.5b_full", "qwen2.5-1.5b_lora"])
def test_what_an_8_bit_step_costs_is_what_was_recorded_in_the_median(name: str) -> None:
    table = read_table(FOLDER / f"h200_{name}.jsonl")
    of_each = {
        point: point.model_copy(update={"optimizer": "adamw8bit"})
        for point in table.measured
        if point.optimizer == "adamw"
    }
    pairs = [(one, other) for one, other in of_each.items() if other in table.measured]
    points, eight = [one for one, _ in pairs], [other for _, other in pairs]
    belief = Belief(Worked(table.training, [*points, *eight]))
    told = belief.step_seconds[len(points) :] - belief.step_seconds[: len(points)]
    tokens = [p.micro_batch_size * p.gradient_accumulation_steps * table.inputs["seq_len"] for p in points]
    recorded = np.array(tokens) * [
        1 / table.measured[other] - 1 / table.measured[one] for one, other in pairs
    ]
    # 30 to 70 ms, whatever the micro batch; without what bitsandbytes adds it would be less than nothing.
    assert 0.5 < np.median(told) / np.median(recorded) < 2.0
