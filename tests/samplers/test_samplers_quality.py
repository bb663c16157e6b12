"""Samplers find fast points sooner than chance does, and learn where memory ends."""

from __future__ import annotations

from statistics import fmean

import pytest
from synthetic_training import fits, misfits, quality, sampler, search, space_points

from autotune.study import Record
from trials.wire import Outcome

SEEDS = range(6)
TRIALS = 40
LORA = space_points("lora")


@pytest.fixture(scope="module")
def by_chance() -> float:
    return fmean(quality(search(sampler("random", LORA, seed), LORA, TRIALS), LORA) for seed in SEEDS)


@pytest.fixture(scope="module")
def by_tpe() -> list[list[Record]]:
    return [search(sampler("tpe", LORA, seed), LORA, TRIALS) for seed in SEEDS]


def test_a_good_part_of_the_space_does_not_fit() -> None:
    assert 0.2 < fmean(not fits(point) for point in LORA) < 0.8


def test_tpe_closes_much_of_what_chance_leaves_to_the_optimum(
    by_chance: float, by_tpe: list[list[Record]]
) -> None:
    found = fmean(quality(history, LORA) for history in by_tpe)
    assert 1 - found < 0.6 * (1 - by_chance)


def test_the_gaussian_process_closes_much_of_it_with_fewer_trials(by_chance: float) -> None:
    found = fmean(quality(search(sampler("gp", LORA, seed), LORA, 24), LORA) for seed in range(4))
    assert 1 - found < 0.6 * (1 - by_chance)


def test_tpe_told_of_out_of_memory_avoids_it(by_tpe: list[list[Record]]) -> None:
    """The same search, in which what does not fit is told as a crash, walks into it far more often."""
    told = fmean(map(misfits, by_tpe))
    untold = fmean(misfits(search(sampler("tpe", LORA, seed), LORA, TRIALS, Outcome.CRASH)) for seed in SEEDS)
    assert told < 0.85 * untold


def test_the_grids_beginning_covers_the_space() -> None:
    """Of 40 among 960 points every value of every field has had its share, to within a factor of three."""
    begun = [record.point for record in search(sampler("grid", LORA, 0), LORA, TRIALS)]
    for name in (
        "micro_batch_size",
        "checkpoint_fraction",
        "zero_stage",
        "offload",
        "lora_rank",
        "liger_kernel",
    ):
        values = [getattr(point, name) for point in LORA]
        for value in set(values):
            expected = TRIALS * values.count(value) / len(values)
            assert expected / 3 <= sum(getattr(point, name) == value for point in begun) <= 3 * expected
