"""Good points are rescaled to what fits, and speeds to what is trained."""

from __future__ import annotations

import math

import pytest
from reuse_samples import GIB, SPACE, need_bytes, point, profile, record, similar, speed

from autotune.reuse import Similar, first_points, knob_effects, prior_observations
from autotune.reuse.source_speed import speed_of_study
from trials.wire import Outcome, Point

SPREAD = [point(1), point(4), point(4, 1.0), point(2, 0.5), point(8, 0.75), point(2, zero_stage=3)]


def best(budget_gib: float) -> Point:
    """The fastest point of the space that fits, by the formulas."""
    return max((p for p in SPACE if need_bytes(p) <= budget_gib * GIB), key=speed)


@pytest.mark.parametrize("budget_gib", [8, 12, 16, 24, 40, 60])
def test_another_budget_gets_the_fastest_point_that_fits_it(budget_gib: int) -> None:
    target = profile(budget_bytes=budget_gib * GIB)
    found = first_points([similar(SPREAD)], SPACE, target, need_bytes)
    assert 1 <= len(found) <= 3 and len({first.point for first in found}) == len(found)
    assert all(need_bytes(first.point) <= budget_gib * GIB for first in found)
    assert speed(found[0].point) >= 0.98 * speed(best(budget_gib))


def test_what_was_slow_is_not_brought_along() -> None:
    found = first_points([similar(SPREAD)], SPACE, profile(), need_bytes)
    assert {first.point.zero_stage for first in found} == {0}


def test_a_study_of_few_trials_brings_the_largest_micro_batch_at_its_share() -> None:
    found = first_points([similar([point(2, 0.5)])], SPACE, profile(), need_bytes)
    # 24 GiB hold 4 + 1.2 each for sixteen sequences of which half the layers are kept.
    assert [first.point for first in found] == [point(16, 0.5)]


def test_accumulation_is_that_of_the_candidates() -> None:
    candidates = [point(size, 0.5, gradient_accumulation_steps=64 // size) for size in (1, 2, 4, 8)]
    found = first_points([similar([point(4, 0.5)])], candidates, profile(global_batch=64), need_bytes)
    assert found[0].point.micro_batch_size * found[0].point.gradient_accumulation_steps == 64


def test_without_predictions_nothing_larger_than_what_ran_is_tried() -> None:
    def unknown(point: Point) -> None:
        return None

    source = similar([point(4, 0.5), point(2), point(1), point(4, 1.0)])
    same = first_points([source], SPACE, profile(), unknown)
    assert max(first.point.micro_batch_size for first in same) == 4
    longer = first_points([source], SPACE, profile(seq_len=2048), unknown)
    assert max(first.point.micro_batch_size for first in longer) == 2
    smaller = first_points([source], SPACE, profile(budget_bytes=6 * GIB), unknown)
    assert max(first.point.micro_batch_size for first in smaller) == 1


def test_a_configuration_that_is_not_possible_here_is_replaced_by_the_nearest() -> None:
    source = similar([point(4, 0.5, lora_rank=64, liger_kernel=True)])
    found = first_points([source], SPACE, profile(), need_bytes)
    assert found[0].point.lora_rank == 16 and not found[0].point.liger_kernel
    foreign = point(4, quantization="nf4", liger_kernel=True, precision="fp16", optimizer="adamw8bit")
    assert first_points([similar([foreign])], SPACE, profile(), need_bytes) == ()


def test_the_more_trusted_study_comes_first() -> None:
    weak = similar([point(1, 1.0)], trust=0.2)
    strong = similar([point(2, 0.25)], trust=0.9)
    found = first_points([weak, strong], SPACE, profile(), need_bytes)
    assert [first.point.checkpoint_fraction for first in found] == [0.25, 1.0]


@pytest.mark.parametrize(
    "records",
    [(), (record(0, point(4), None), record(1, point(2), None))],
    ids=["empty", "all out of memory"],
)
def test_a_study_without_a_speed_gives_nothing(records: tuple[object, ...]) -> None:
    empty = Similar("s", 0.9, "", profile(), records)  # type: ignore[arg-type]
    assert first_points([empty], SPACE, profile(), need_bytes) == ()
    assert prior_observations([empty], profile()) == ()
    assert knob_effects([empty]).log_ratios == {}
    assert speed_of_study(empty) is None


def test_nothing_is_left_where_there_is_no_candidate() -> None:
    assert first_points([similar(SPREAD)], [], profile(), need_bytes) == ()


def test_a_studys_costs_are_those_of_its_trials() -> None:
    fitted = speed_of_study(similar(SPACE[:45:2]))
    assert fitted is not None
    for unseen in SPACE[1:45:2]:
        assert fitted.tokens_per_second(unseen, profile()) == pytest.approx(speed(unseen), rel=0.03)


def test_a_larger_model_of_the_family_is_slower_in_proportion() -> None:
    fitted = speed_of_study(similar(SPACE[:45]))
    assert fitted is not None
    larger = profile("qwen2.5-3b")
    ratio = larger.parameters / profile().parameters
    slower = fitted.tokens_per_second(point(24), profile()) / fitted.tokens_per_second(point(24), larger)
    assert slower == pytest.approx(ratio, rel=0.1)


def test_observations_carry_the_trust_and_less_of_what_was_stopped() -> None:
    full, cut = record(0, point(4), 1000.0), record(1, point(2), 500.0)
    assert cut.result is not None
    stopped = cut.result.model_copy(update={"outcome": Outcome.STOPPED})
    records = (full, type(cut)(1, cut.point, stopped, None, cut.started_at, None), record(2, point(24), None))
    source = Similar("s", 0.6, "", profile(), records)
    first, second = prior_observations([source], profile())
    assert (first.point, first.tokens_per_second, first.weight) == (point(4), 1000.0, 0.6)
    assert second.weight == pytest.approx(0.3)
    assert first.model.name == "qwen2.5-1.5b" and first.seq_len == 1024 and first.gpu_name == "NVIDIA H200"


def test_effects_of_knobs_are_the_factors_they_were_made_with() -> None:
    """ZeRO-3 takes 1.25 times as long in the samples, whatever else a point is."""
    effects = knob_effects([similar(SPACE)])
    ratio = effects.log_ratios["zero_stage", 3] - effects.log_ratios["zero_stage", 0]
    assert ratio == pytest.approx(-math.log(1.25), rel=0.05)
    sizes = [effects.log_ratios["micro_batch_size", size] for size in (1, 4, 16)]
    assert sizes == sorted(sizes)
    assert effects.ranked(SPACE)[0].micro_batch_size == 24 and effects.ranked(SPACE)[0].zero_stage == 0
    assert effects.expected(Point(attention="eager")) != effects.expected(point(24))


def test_effects_of_two_studies_weigh_by_trust() -> None:
    slow_stage, fast_stage = similar(SPACE, trust=0.75), similar(SPACE, trust=0.25)
    turned = tuple(
        record(r.number, r.point, 1e8 / r.result.tokens_per_second)
        for r in fast_stage.records
        if r.result and r.result.tokens_per_second
    )
    both = knob_effects([slow_stage, Similar("t", 0.25, "", profile(), turned)])
    alone = knob_effects([slow_stage])
    for value, effect in alone.log_ratios.items():
        assert both.log_ratios[value] == pytest.approx(0.5 * effect, abs=1e-9)
