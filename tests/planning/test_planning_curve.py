"""What each budget buys, cut from one prediction of the space."""

from __future__ import annotations

import pytest

from autotune.display.budgets import curve_text
from autotune.planning.curve import Curve, steps_of, what_it_buys
from autotune.planning.outlook import Outlook
from autotune.prediction import Prediction
from trials.wire import Point

GIB = 2**30


def outlook(gib: float, speed: float, *, host_gib: float = 1.0, **fields: object) -> Outlook:
    """A point that needs so much; which point it is follows from its figures."""
    size = round(gib * GIB)
    prediction = Prediction(
        peak_allocated_bytes=size, setup_peak_allocated_bytes=size, phase_peak_allocated_bytes={},
        peak_reserved_bytes=size, required_device_bytes=size, confirmed_required_device_bytes=size,
        device_bytes=size, outside_allocator_bytes=0, host_peak_bytes=round(host_gib * GIB),
        breakdown={"weights": size}, phase="backward", trainable_parameters=1, total_parameters=1, exact=True,
    )  # fmt: skip
    point = Point.model_validate({"micro_batch_size": round(speed), **fields})
    return Outlook(point, prediction, None, speed)


SMALL, MIDDLE, LARGE = outlook(10, 100), outlook(20, 200), outlook(40, 400)
SLOW_AND_LARGE = outlook(30, 150)
STAGE = [LARGE, SMALL, SLOW_AND_LARGE, MIDDLE]


@pytest.mark.parametrize(
    ("gib", "best", "limit"),
    [
        (10, SMALL, "device"),
        (24, MIDDLE, "device"),
        (39, MIDDLE, "device"),
        (40, LARGE, None),
        (80, LARGE, None),
    ],
)
def test_a_budget_buys_the_fastest_that_fits_and_more_memory_would_buy_the_next(
    gib: int, best: Outlook, limit: str | None
) -> None:
    bought = what_it_buys([STAGE], gib * GIB, None)
    assert (bought.best, bought.limit) == (best, limit)


def test_where_nothing_fits_the_nearest_is_named() -> None:
    bought = what_it_buys([STAGE], 9 * GIB, None)
    assert (bought.best, bought.limit, bought.nearest) == (None, "device", SMALL)
    shown = bought.as_json()
    assert shown["fits"] is False and shown["estimated_tokens_per_second"] is None
    assert shown["required_device_bytes"] == 10 * GIB and shown["budget_bytes"] == 9 * GIB


def test_host_memory_binds_where_only_it_keeps_a_faster_point_out() -> None:
    offloaded = outlook(12, 300, host_gib=64, zero_stage=2, offload="optimizer")
    stage = [SMALL, offloaded]
    assert what_it_buys([stage], 16 * GIB, 32 * GIB).limit == "host"
    assert what_it_buys([stage], 16 * GIB, 64 * GIB) == what_it_buys([[offloaded]], 16 * GIB, None)
    assert what_it_buys([[offloaded]], 16 * GIB, 32 * GIB).limit == "host"


def test_a_later_method_is_looked_at_where_the_first_has_nothing_that_fits() -> None:
    quantised = outlook(5, 50, lora_rank=16, quantization="nf4")
    assert what_it_buys([STAGE, [quantised]], 8 * GIB, None).best == quantised
    assert what_it_buys([STAGE, [quantised]], 10 * GIB, None).best == SMALL


def test_the_curve_steps_where_another_point_becomes_the_best() -> None:
    steps = steps_of([STAGE], None)
    found = [(bought.budget_bytes // GIB, bought.best) for bought in steps]
    assert found == [(8, None), (10, SMALL), (20, MIDDLE), (40, LARGE)]
    speeds = [bought.best.tokens_per_second or 0 for bought in steps if bought.best]
    assert speeds == sorted(speeds)


def test_the_curve_is_told_line_by_line() -> None:
    curve = Curve((what_it_buys([STAGE], 24 * GIB, None),), tuple(steps_of([STAGE], None)))
    text = curve_text(curve, "an H200")
    assert "24.0 GiB   ~200 tok/s  20.0 GiB  mb 200" in text
    assert "device memory: more would buy a faster one" in text
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")] == [
        "8.0",
        "10.0",
        "20.0",
        "40.0",
    ]
    assert "nothing fits" in text
