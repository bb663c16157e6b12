"""The median's interval: ranks from the binomial table, and how precise a few timings are."""

from __future__ import annotations

import math

import pytest

from trials.interval import median_interval, relative_half_width


@pytest.mark.parametrize(
    ("n", "low_rank", "high_rank"),
    [
        # Lower and upper order statistic of the 95 % interval of a median, from tables of the binomial:
        # coverage 96.9 % (6), 98.4 % (7), 99.2 % (8), 96.1 % (9), 96.5 % (15), 95.9 % (20), 95.7 % (25).
        (6, 1, 6),
        (7, 1, 7),
        (8, 1, 8),
        (9, 2, 8),
        (10, 2, 9),
        (12, 3, 10),
        (15, 4, 12),
        (20, 6, 15),
        (25, 8, 18),
    ],
)
def test_the_interval_is_that_of_the_binomial_table(n: int, low_rank: int, high_rank: int) -> None:
    # The values are their own ranks, in an order that is not sorted.
    values = [float(rank) for rank in [*range(2, n + 1, 2), *range(1, n + 1, 2)]]
    assert median_interval(values) == ((n + 1) / 2, low_rank, high_rank)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_too_few_values_have_their_extremes_for_an_interval(n: int) -> None:
    assert median_interval([float(rank) for rank in range(1, n + 1)]) == ((n + 1) / 2, 1, n)


def test_the_half_width_is_relative_to_the_median() -> None:
    # Median 10, extremes 9 and 11.
    assert relative_half_width([9.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert relative_half_width([2.0] * 8) == 0


def test_one_value_says_nothing_about_precision() -> None:
    assert relative_half_width([1.0]) == math.inf
    assert relative_half_width([]) == math.inf
