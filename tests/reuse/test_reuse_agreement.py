"""What was carried over is given up when it is wrong, and kept when it is not."""

from __future__ import annotations

import pytest
from reuse_samples import point

from autotune.reuse import Tried, judged


def carried(expected: float, speed: float | None) -> Tried:
    return Tried(point(4), expected, speed)


def own(speed: float | None) -> Tried:
    return Tried(point(2), None, speed)


def test_before_anything_is_measured_all_trust_is_left() -> None:
    assert judged([]).share == 1.0
    assert judged([own(100.0)]).share == 1.0


def test_what_holds_keeps_all_trust() -> None:
    found = judged([carried(1.0, 100.0), own(80.0), carried(0.9, 91.0), carried(0.8, 79.0)])
    assert found.share == 1.0 and found.words == ""


def test_one_clearly_faster_of_its_own_ends_all_trust_and_is_told() -> None:
    found = judged([carried(1.0, 100.0), own(125.0)])
    assert found.share == 0.0 and "25%" in found.words


def test_between_equal_and_clearly_faster_trust_falls_gradually() -> None:
    shares = [judged([carried(1.0, 100.0), own(speed)]).share for speed in (100.0, 102.0, 105.0, 107.9)]
    assert shares[0] == 1.0 and shares == sorted(shares, reverse=True) and 0 < shares[-1] < 0.05


def test_what_the_clock_cannot_tell_is_no_disagreement() -> None:
    noisy = Tried(point(4), 1.0, 100.0, noise=0.15), Tried(point(2), None, 125.0, noise=0.1)
    assert judged(noisy).share == 1.0
    assert judged([Tried(point(4), 1.0, 100.0, noise=0.01), Tried(point(2), None, 125.0)]).share == 0.0


def test_a_reversed_order_ends_all_trust() -> None:
    found = judged([carried(1.0, 50.0), own(10.0), carried(0.8, 70.0), carried(0.6, 90.0)])
    assert found.share == 0.0 and "3 of 3" in found.words


def test_differences_within_the_noise_are_no_order() -> None:
    assert judged([carried(1.0, 100.0), carried(0.99, 101.0), carried(0.98, 102.0)]).share == 1.0
    assert judged([carried(1.0, 100.0), carried(0.5, 101.0)]).share == 1.0


def test_half_of_the_order_wrong_is_half_of_the_trust() -> None:
    found = judged([carried(1.0, 100.0), carried(0.9, 80.0), carried(0.7, 90.0), carried(0.6, 85.0)])
    # Of six pairs two are reversed: 0.9 against 0.7 and 0.9 against 0.6.
    assert found.share == pytest.approx(4 / 6)


def test_running_out_of_memory_says_nothing_of_speed_unless_nothing_ran() -> None:
    assert judged([carried(1.0, None), own(50.0), carried(0.9, 100.0)]).share == 1.0
    found = judged([carried(1.0, None), own(50.0)])
    assert found.share == 0.0 and "none" in found.words


def test_later_trials_of_the_search_know_better_and_are_not_held_against_it() -> None:
    assert judged([carried(1.0, 100.0), own(70.0), own(80.0), own(150.0)]).share == 1.0
