from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from autotune.winner import choose_winner, price_list, ranking
from trials.wire import Outcome, Phase, Point, TrialResult


@dataclass(frozen=True)
class Run:
    """A record as the study keeps it, without its dates."""

    point: Point
    result: TrialResult | None


def run(
    tokens_per_second: float | None,
    *,
    spread: float = 0.001,
    outcome: Outcome = Outcome.OK,
    required: int | None = 1000,
    **point: Any,
) -> Run:
    """A run whose 95 % interval is `spread` of the median to either side."""
    speed = tokens_per_second
    result = TrialResult(
        trial_id="t",
        outcome=outcome,
        phase=Phase.LATER_STEP,
        tokens_per_second=speed,
        tokens_per_second_low=None if speed is None else speed * (1 - spread),
        tokens_per_second_high=None if speed is None else speed * (1 + spread),
        required_device_bytes=required,
    )
    return Run(Point(**point), result)


def speeds(runs: Iterable[Run]) -> list[float | None]:
    return [r.result.tokens_per_second if r.result else None for r in runs]


def test_only_runs_that_ended_well_are_ranked_and_the_fastest_is_first() -> None:
    records = [
        run(100.0, micro_batch_size=1),
        run(900.0, micro_batch_size=2, outcome=Outcome.STOPPED),
        run(300.0, micro_batch_size=3),
        run(None, micro_batch_size=4, outcome=Outcome.OOM),
        run(None, micro_batch_size=6),
        run(float("nan"), micro_batch_size=8),
        run(200.0, micro_batch_size=12),
        Run(Point(micro_batch_size=16), None),
    ]
    assert speeds(ranking(records)) == [300.0, 200.0, 100.0]


def test_what_needs_more_than_the_budget_is_not_ranked() -> None:
    records = [run(300.0, required=2001), run(200.0, required=2000), run(100.0, required=None)]
    assert speeds(ranking(records, budget_bytes=2000)) == [200.0, 100.0]


def test_nothing_that_fits_has_no_winner() -> None:
    assert choose_winner([]) is None
    assert choose_winner([run(None, outcome=Outcome.OOM), Run(Point(), None)]) is None


def test_a_clearly_faster_run_wins_although_it_gives_up_quality() -> None:
    slow = run(1000.0, lora_rank=128)
    fast = run(1050.0, lora_rank=16, quantization="nf4", optimizer="adamw8bit", precision="fp16")
    assert choose_winner([slow, fast]) is fast


def test_within_one_per_cent_the_one_that_gives_up_least_wins() -> None:
    fast = run(1000.0, spread=0.0001, lora_rank=16)
    close = run(990.5, spread=0.0001, lora_rank=32)
    far = run(989.0, spread=0.0001, lora_rank=64)
    assert choose_winner([fast, close, far]) is close


def test_overlapping_intervals_are_a_tie() -> None:
    fast = run(1000.0, spread=0.03, lora_rank=16)
    # 960 x 1.011 = 970.56 reaches 1000 x 0.97 = 970; 959 x 1.011 = 969.5 does not.
    assert choose_winner([fast, touching := run(960.0, spread=0.011, lora_rank=32)]) is touching
    assert choose_winner([fast, run(959.0, spread=0.011, lora_rank=32)]) is fast


def test_a_very_noisy_run_does_not_tie_with_one_far_faster() -> None:
    fast = run(1000.0, spread=0.001, lora_rank=16)
    noisy = run(700.0, spread=0.6, lora_rank=128)
    assert choose_winner([fast, noisy]) is fast


# Each pair differs in one thing; the first gives up less of it.
BETTER_AND_WORSE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"lora_rank": 0}, {"lora_rank": 128}),
    ({"lora_rank": 64}, {"lora_rank": 32}),
    ({"lora_rank": 16}, {"lora_rank": 16, "quantization": "int8"}),
    ({"lora_rank": 16, "quantization": "int8"}, {"lora_rank": 16, "quantization": "nf4"}),
    ({"optimizer": "adamw"}, {"optimizer": "adamw8bit"}),
    ({"optimizer": "adamw"}, {"optimizer": "paged_adamw8bit"}),
    ({"precision": "fp32"}, {"precision": "bf16"}),
    ({"precision": "bf16"}, {"precision": "fp16"}),
    # What comes first weighs more than all that follows.
    ({"lora_rank": 32, "quantization": "nf4"}, {"lora_rank": 16}),
    ({"lora_rank": 16, "optimizer": "adamw8bit"}, {"lora_rank": 16, "quantization": "int8"}),
    ({"precision": "fp16"}, {"precision": "fp32", "optimizer": "adamw8bit"}),
]


@pytest.mark.parametrize(("better", "worse"), BETTER_AND_WORSE)
def test_a_tie_goes_to_what_trains_better(better: dict[str, Any], worse: dict[str, Any]) -> None:
    good, bad = run(995.0, required=5000, **better), run(1000.0, required=1000, **worse)
    assert choose_winner([bad, good]) is good
    assert choose_winner([good, bad]) is good


def test_a_tie_in_quality_goes_to_more_headroom_and_then_to_the_faster() -> None:
    roomy = run(995.0, required=1000, micro_batch_size=2)
    fast = run(1000.0, required=2000, micro_batch_size=4)
    unknown = run(999.0, required=None, micro_batch_size=8)
    assert choose_winner([fast, unknown, roomy]) is roomy
    assert choose_winner([run(995.0, micro_batch_size=2), same := run(1000.0, micro_batch_size=4)]) is same


def test_a_point_whose_confirmation_failed_does_not_win() -> None:
    first, second, third = (
        run(s, lora_rank=8, micro_batch_size=m) for s, m in ((1000.0, 4), (900.0, 2), (500.0, 1))
    )
    assert choose_winner([first, second, third], exclude=[first.point]) is second
    assert choose_winner([first, second, third], exclude={first.point, second.point}) is third
    assert choose_winner([first], exclude=[first.point]) is None


def test_the_fastest_that_was_excluded_does_not_decide_what_ties() -> None:
    excluded = run(1000.0, lora_rank=8)
    fast, close = run(800.0, lora_rank=16), run(795.0, lora_rank=32)
    assert choose_winner([excluded, fast, close], exclude=[excluded.point]) is close


def test_the_price_list_has_the_best_of_each_value_and_its_share_of_the_best() -> None:
    records = [
        run(1000.0, lora_rank=16, micro_batch_size=4),
        run(1200.0, lora_rank=16, micro_batch_size=8, required=7),
        run(900.0, lora_rank=64),
        run(600.0, lora_rank=16, quantization="nf4"),
        run(None, lora_rank=128, outcome=Outcome.OOM),
    ]
    prices = price_list(records)
    shown = [(p.knob, p.value, p.tokens_per_second, p.share) for p in prices]
    assert shown == [
        ("method", "lora", 1200.0, 1.0),
        ("method", "qlora", 600.0, 0.5),
        ("lora_rank", 64, 900.0, 0.75),
        ("lora_rank", 16, 1200.0, 1.0),
        ("quantization", "none", 1200.0, 1.0),
        ("quantization", "nf4", 600.0, 0.5),
    ]
    assert prices[0].point == records[1].point
    assert prices[0].required_device_bytes == 7


def test_full_fine_tuning_is_a_method_and_not_a_rank() -> None:
    prices = price_list([run(1000.0, lora_rank=16), run(400.0)])
    assert [(p.knob, p.value) for p in prices] == [("method", "full"), ("method", "lora")]


def test_precision_and_optimizer_have_their_prices() -> None:
    prices = price_list([run(1000.0, optimizer="adamw8bit"), run(800.0), run(250.0, precision="fp32")])
    assert [(p.knob, p.value, p.share) for p in prices] == [
        ("precision", "fp32", 0.25),
        ("precision", "bf16", 1.0),
        ("optimizer", "adamw", 0.8),
        ("optimizer", "adamw8bit", 1.0),
    ]


def test_tokens_per_step_are_a_knob_only_where_accumulation_is_searched() -> None:
    records = [
        run(1000.0, micro_batch_size=4, gradient_accumulation_steps=8),
        run(800.0, micro_batch_size=4, gradient_accumulation_steps=1),
    ]
    assert price_list(records) == ()
    prices = price_list(records, seq_len=128, gpus=2)
    assert [(p.knob, p.value, p.share) for p in prices] == [
        ("tokens_per_step", 1024, 0.8),
        ("tokens_per_step", 8192, 1.0),
    ]


def test_the_price_list_leaves_out_what_failed_its_confirmation() -> None:
    fast, slow, slower = run(1000.0, lora_rank=8), run(800.0, lora_rank=16), run(600.0, lora_rank=32)
    prices = price_list([fast, slow, slower], exclude=[fast.point])
    assert [(p.value, p.share) for p in prices] == [(32, 0.75), (16, 1.0)]
    assert price_list([]) == ()
