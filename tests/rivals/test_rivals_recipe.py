"""The usual recipe's doubling and halving, against memory that holds so many sequences and no more."""

from __future__ import annotations

import pytest

from benchmarks.rivals.recipe import largest_that_fits


@pytest.mark.parametrize(
    ("holds", "most", "expected", "asked"),
    [
        (10, 32, 8, [4, 8, 16]),
        (8, 32, 8, [4, 8, 16]),
        (4, 32, 4, [4, 8]),
        (3, 32, 2, [4, 2]),
        (1, 32, 1, [4, 2, 1]),
        (0, 32, None, [4, 2, 1]),
        (1000, 32, 32, [4, 8, 16, 32]),
        (1000, 30, 16, [4, 8, 16]),
        (1000, 4, 4, [4]),
    ],
)
def test_the_largest_power_of_two_that_fits_is_found_without_asking_twice(
    holds: int, most: int, expected: int | None, asked: list[int]
) -> None:
    seen: list[int] = []

    def fits(size: int) -> bool:
        seen.append(size)
        return size <= holds

    assert largest_that_fits(fits, 4, most) == expected
    assert seen == asked
