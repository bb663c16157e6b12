"""Why points do not fit, and what would help."""

from __future__ import annotations

from autotune.planning.advice import nearest, reason, rejections, remedy
from autotune.planning.outlook import Budgets, Outlook, broken_limit
from autotune.planning.plan import ranked_outlooks
from autotune.prediction import Prediction
from trials.wire import Point

GIB = 2**30
BUDGETS = Budgets(24 * GIB, 64 * GIB)


def outlook(needs: float, host: float = 2.0, speed: float = 1.0, **point: object) -> Outlook:
    """A point that needs so many GiB of the device and of the host."""
    size = int(needs * GIB)
    prediction = Prediction(
        peak_allocated_bytes=size,
        setup_peak_allocated_bytes=size // 2,
        phase_peak_allocated_bytes={"load": size // 2, "later_step": size},
        peak_reserved_bytes=size,
        required_device_bytes=size,
        confirmed_required_device_bytes=size,
        device_bytes=size,
        outside_allocator_bytes=0,
        host_peak_bytes=int(host * GIB),
        breakdown={"weights": size // 2, "logits": size // 4, "gradients": size // 8, "buffers": size // 8},
        phase="backward",
        trainable_parameters=1,
        total_parameters=1,
        exact=True,
    )
    return Outlook(Point(**point), prediction, broken_limit(prediction, BUDGETS), speed)  # type: ignore[arg-type]


def test_a_budget_holds_to_its_last_byte_and_the_device_is_named_first() -> None:
    assert outlook(24.0, 64.0).fits
    assert outlook(24.01).limit == "device"
    assert outlook(10.0, 64.01).limit == "host"
    assert outlook(25.0, 65.0).limit == "device"
    assert broken_limit(outlook(999.0, 999.0).prediction, Budgets()) is None


def test_the_reason_names_what_is_needed_and_the_largest_pieces() -> None:
    assert reason(outlook(32.0), BUDGETS) == (
        "needs 32.0 GiB of 24.0 GiB: weights 16.0 GiB, logits 8.0 GiB, gradients 4.0 GiB"
    )
    assert reason(outlook(10.0, 80.0), BUDGETS) == "needs 80.0 GiB of 64.0 GiB host memory"


def test_the_nearest_lacks_least_whichever_limit_it_breaks() -> None:
    far, near, host = (
        outlook(48.0),
        outlook(30.0, micro_batch_size=2),
        outlook(10.0, 70.0, micro_batch_size=3),
    )
    assert nearest([far, near], BUDGETS) == near
    # 70 of 64 is less beyond than 30 of 24.
    assert nearest([far, near, host], BUDGETS) == host


def test_the_remedy_is_the_smallest_change_that_fits() -> None:
    point = Point(micro_batch_size=8)
    one = Point(micro_batch_size=8, liger_kernel=True)
    two = Point(micro_batch_size=4, gradient_accumulation_steps=2, checkpoint_fraction=1.0)
    three = Point(micro_batch_size=1, zero_stage=3, offload="optimizer")
    assert remedy(point, [three, two, one]) == "try liger_kernel True"
    # Accumulation follows from the micro batch and is no change of its own.
    assert remedy(point, [three, two]) == "try micro_batch_size 4 and checkpoint_fraction 1.0"
    assert remedy(point, [three]) == "" and remedy(point, []) == ""


def test_points_that_do_not_fit_are_grouped_by_what_decides_their_states() -> None:
    points = [
        outlook(20.0),
        outlook(30.0, micro_batch_size=2),
        outlook(60.0, micro_batch_size=4),
        outlook(26.0, zero_stage=2),
    ]
    groups = rejections(points, BUDGETS)
    assert [(one.group["zero_stage"], one.count) for one in groups] == [(2, 1), (0, 2)]
    assert groups[1].nearest == points[1]
    assert groups[1].remedy == "try micro_batch_size 1"


def test_what_fits_comes_first_the_fastest_of_it_and_then_the_nearest() -> None:
    slow, fast = outlook(20.0, speed=1.0), outlook(23.0, speed=9.0, micro_batch_size=2)
    near, far = outlook(25.0, speed=99.0, micro_batch_size=3), outlook(50.0, micro_batch_size=4)
    assert ranked_outlooks([far, slow, near, fast], BUDGETS) == [fast, slow, near, far]
