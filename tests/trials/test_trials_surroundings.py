"""What disturbed a measurement: told in words where it could have changed the figure, and only there."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from trials.surroundings import OthersLoad, Surroundings, disturbance, step_change

MIB = 1 << 20
STEADY = [1.00, 1.01, 1.00, 1.01]
SLOWER = [1.00, 1.00, 1.10, 1.10]


def gpu(
    clock: int | None = 1980, slowed: tuple[str, ...] = (), processes: int = 1, outside: int = 2000
) -> Surroundings:
    return Surroundings(clock, slowed, processes, outside * MIB)


def test_a_quiet_gpu_disturbs_nothing() -> None:
    assert disturbance([gpu(), gpu(clock=1965), gpu(outside=2030)], STEADY) is None
    assert disturbance([gpu(clock=None, processes=0)] * 3, STEADY) is None
    assert disturbance([], STEADY) is None


def test_a_clock_that_moves_without_any_effect_is_no_disturbance() -> None:
    # Between steps an idle moment lets the clock move; the steps say whether it mattered.
    assert disturbance([gpu(), gpu(clock=1200), gpu()], STEADY) is None


@pytest.mark.parametrize(
    ("seen", "steps", "words"),
    [
        ([gpu(), gpu(slowed=("too hot",)), gpu()], STEADY, "slowed itself down (too hot)"),
        ([gpu(), gpu(processes=2), gpu()], STEADY, "another process is on this GPU"),
        ([gpu(), gpu(outside=3000)], STEADY, "another process took 1000 MiB"),
        ([gpu(outside=3000), gpu()], STEADY, "another process gave back 1000 MiB"),
        ([gpu(), gpu(clock=1500)], SLOWER, "its clock moved between 1500 and 1980 MHz"),
        ([gpu(), gpu()], SLOWER, "the steps became 10% slower"),
        ([gpu(), gpu()], SLOWER[::-1], "the steps became 9% faster"),
    ],
)
def test_whatever_could_have_changed_the_figure_is_told(
    seen: list[Surroundings], steps: list[float], words: str
) -> None:
    assert words in (disturbance(seen, steps) or "")


def test_halves_of_a_single_step_say_nothing() -> None:
    assert step_change([1.0, 2.0, 2.0]) == 0.0
    # The middle one of an odd number belongs to neither half.
    assert step_change([1.0, 1.0, 9.0, 1.2, 1.2]) == pytest.approx(0.2)


def test_the_load_of_others_is_seen() -> None:
    spin = [sys.executable, "-c", "import time; end = time.time() + 1.2\nwhile time.time() < end: pass"]
    others = OthersLoad()
    with subprocess.Popen(spin):
        time.sleep(1.0)
        assert others.share() > 0.05
