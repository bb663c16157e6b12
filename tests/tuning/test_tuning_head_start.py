"""A study begins with what similar ones showed, compares it with a trial of its own, and drops errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_samples import empty_study

from autotune.models import resolve_model
from autotune.reuse import Profile, Similar, profile_of
from autotune.study import Record, Study, StudyInputs
from autotune.throughput import CPU_RATES, Training, Worked
from autotune.throughput.coefficients import shipped_prior
from autotune.tuning.head_start import MANY_CANDIDATES, Carry, HeadStart
from autotune.tuning.lessons import NOTHING
from autotune.tuning.similar_studies import reuse_json
from trials.wire import Outcome, Phase, Point, TrialResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIZES, SHARES = (1, 2, 4, 8), (0.0, 0.5, 1.0)
SPACE = tuple(
    Point(micro_batch_size=size, checkpoint_fraction=share, lora_rank=rank, zero_stage=stage)
    for stage in (0, 2)
    for rank in (16, 64)
    for share in SHARES
    for size in SIZES
)
SMALL = Training(resolve_model("tiny-llama"), 128, CPU_RATES)
TRAINING = Training(resolve_model("qwen2.5-1.5b"), 1024)


def speed(point: Point) -> float:
    return 1000 * point.micro_batch_size / (point.micro_batch_size + 1) / (1 + point.checkpoint_fraction / 3)


def need(point: Point) -> int:
    return point.micro_batch_size


def result(tokens_per_second: float | None) -> TrialResult:
    if tokens_per_second is None:
        return TrialResult(trial_id="", outcome=Outcome.OOM, phase=Phase.BACKWARD)
    return TrialResult(
        trial_id="", outcome=Outcome.OK, phase=Phase.LATER_STEP, tokens_per_second=tokens_per_second
    )


def measured(*trials: tuple[Point, float | None]) -> list[Record]:
    return [Record(n, point, result(speed), None, NOW, NOW) for n, (point, speed) in enumerate(trials)]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return empty_study(tmp_path)


def target_of(inputs: StudyInputs, budget: int = 8) -> Profile:
    profile = profile_of(inputs, resolve_model("tiny-llama"), None)
    return replace(profile, budget_bytes=budget)


class Told:
    """What was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)


def head_start(study: Study, told: Told | None = None, trust: float = 0.8, **carry: bool) -> HeadStart:
    profile = target_of(study.inputs)
    records = tuple(measured(*((point, speed(point)) for point in SPACE[::2])))
    source = Similar("source", trust, "alike", profile, records)
    study.set_note("reuse", study.note("reuse") or {"studies": [source.as_json()]})
    return HeadStart(study, profile, [source], told or Told(), Carry(**carry) if carry else None)


def left(records: Sequence[Record]) -> list[Point]:
    return [point for point in SPACE if point not in {record.point for record in records}]


def play(start: HeadStart, speeds: Sequence[float | None]) -> list[str]:
    """Who chose each trial, when the carried ones and the search's own report these speeds in turn."""
    records: list[Record] = []
    chosen = []
    for value in speeds:
        point = start.next_point(records, left(records), need)
        chosen.append("own" if point is None else "carried")
        point = point or next(p for p in reversed(left(records)) if p not in start.carried())
        records.append(Record(len(records), point, result(value), None, NOW, NOW))
    return chosen


def test_one_carried_then_one_of_its_own_then_two_more_carried(study: Study) -> None:
    assert play(head_start(study), [1000, 700, 990, 980, 900, 900]) == [
        "carried",
        "own",
        "carried",
        "carried",
        "own",
        "own",
    ]


def test_the_first_one_is_the_fastest_that_fits(study: Study) -> None:
    point = head_start(study).next_point([], SPACE, need)
    assert point is not None and (point.micro_batch_size, point.checkpoint_fraction) == (8, 0.0)
    few = [point for point in SPACE if point.micro_batch_size < 8]
    other = head_start(study).next_point([], few, need)
    assert other is not None and other.micro_batch_size == 4


def test_wrong_advice_costs_one_trial_and_is_told_once(study: Study) -> None:
    told = Told()
    start = head_start(study, told)
    assert play(start, [100, 700, 710, 720, 730]) == ["carried", "own", "own", "own", "own"]
    [line] = told.lines
    assert "not used any more" in line and "600%" in line
    records = measured((next(iter(start.carried())), 100), (SPACE[0], 700))
    assert start.taught(records, SMALL) is NOTHING
    said = reuse_json(study)
    assert said["reuse"] == [{"study": "source", "trust": 0.8, "why": "alike"}]
    assert said["reuse_left"] == 0.0 and "faster" in said["reuse_disagreement"]


def test_advice_that_does_not_fit_costs_one_trial(study: Study) -> None:
    assert play(head_start(study), [None, 700, 710]) == ["carried", "own", "own"]


def test_a_search_that_was_interrupted_goes_on_as_it_would_have(study: Study, tmp_path: Path) -> None:
    first = head_start(study).next_point([], SPACE, need)
    assert first is not None
    again = Study.load(study._url, study.name)
    records = measured((first, 1000))
    assert head_start(again).next_point(records, left(records), need) is None
    records = measured((first, 1000), (SPACE[0], 500))
    assert head_start(again).next_point(records, left(records), need) is not None
    assert head_start(again).carried().keys() >= {first}


def test_each_switch_is_its_own(study: Study) -> None:
    start = head_start(study, points=False, observations=True, knobs=False)
    assert start.next_point([], SPACE, need) is None
    assert {one.point for one in start.taught([], SMALL).known} == set(SPACE[::2])
    records = measured((SPACE[0], 500.0))
    assert list(start.preferred(records, SPACE)) == list(SPACE)
    start = head_start(study, points=True, observations=False, knobs=True)
    assert start.taught([], SMALL) is NOTHING
    preferred = start.preferred(records, SPACE)
    assert len(preferred) == max(MANY_CANDIDATES, len(SPACE) // 2) < len(SPACE)
    assert {point.micro_batch_size for point in preferred} >= {8, 4}
    assert min(map(speed, preferred)) > min(map(speed, SPACE))


def test_speeds_of_the_same_training_weigh_what_is_left_of_the_trust(study: Study) -> None:
    start = head_start(study)
    point = start.next_point([], SPACE, need)
    assert point is not None
    assert start.taught(measured((point, 1000.0)), SMALL) is NOTHING  # nothing of its own to compare with
    # As expected of both; then of the trust log 1.04 / log 1.08 is gone.
    whole = start.taught(measured((point, speed(point)), (SPACE[0], speed(SPACE[0]))), SMALL)
    doubted = start.taught(measured((point, speed(point)), (SPACE[0], 1.04 * speed(point))), SMALL)
    for sure, less in zip(whole.known, doubted.known, strict=True):
        assert sure.tokens_per_second == less.tokens_per_second
        assert less.noise == pytest.approx(sure.noise / np.sqrt(1 - 0.5096), rel=1e-3)


def test_the_same_training_teaches_its_speeds_and_another_only_coefficients(study: Study) -> None:
    start = head_start(study, points=False, observations=True, knobs=False)
    [source] = start.similar
    assert start.taught([], SMALL).prior is None
    for other in ({"seq_len": 17}, {"model_digest": "another"}, {"host_cpus": 1000}):
        start = head_start(study, points=False, observations=True, knobs=False)
        start.similar = (replace(source, profile=replace(source.profile, **other)),)
        assert start.taught([], SMALL).known == ()


@pytest.mark.parametrize("records", [(), measured((SPACE[0], None))], ids=["empty", "all out of memory"])
def test_a_source_without_a_speed_is_no_hindrance(study: Study, records: Any) -> None:
    source = Similar("source", 0.8, "alike", target_of(study.inputs), tuple(records))
    start = HeadStart(study, target_of(study.inputs), [source], Told())
    assert start.next_point([], SPACE, need) is None
    assert list(start.preferred(measured((SPACE[0], 1.0)), SPACE)) == list(SPACE)


def carried_and_own(start: HeadStart, own_speed: float) -> list[Record]:
    """What is carried over, at the speed that it promises, and one of the search's own choosing."""
    first = start.next_point([], SPACE, need)
    assert first is not None
    own = next(point for point in SPACE if point.micro_batch_size == 2)
    return measured((first, speed(first)), (own, own_speed))


def test_prices_of_the_same_model_are_known_once_a_trial_of_its_own_agrees(study: Study) -> None:
    start = head_start(study)
    trials = carried_and_own(start, 100.0)
    assert start.prices(trials[:1]) is None
    known = start.prices(trials)
    assert known is not None and set(known.values()) == {"source"}
    assert {value for knob, value in known if knob == "lora_rank"} == {16, 64}


def test_nothing_of_prices_is_known_where_the_trials_disagree(study: Study) -> None:
    start = head_start(study)
    assert start.prices(carried_and_own(start, 5_000.0)) is None


@pytest.mark.parametrize(
    "other", [{"model_digest": "another"}, {"method": "full"}, {}], ids=["model", "method", "trust"]
)
def test_prices_of_another_training_are_not_taken_for_this_one_s(study: Study, other: dict[str, str]) -> None:
    start = head_start(study, trust=0.8 if other else 0.7)
    [source] = start.similar
    start.similar = (replace(source, profile=replace(source.profile, **other)),)
    assert start.prices(carried_and_own(start, 100.0)) is None


def fast_at(points: Sequence[Point], factor_of_recomputing: float) -> list[tuple[Point, float]]:
    """Points of the model of speed's own, but for what recomputation costs."""
    worked = Worked(TRAINING, points)
    expected = worked.work.tokens / np.exp(worked.times(shipped_prior("cuda").mean).log_seconds)
    return [
        (point, float(one) * (factor_of_recomputing if point.checkpoint_fraction else 1.0))
        for point, one in zip(points, expected, strict=True)
    ]


def of_training(
    study: Study, trials: Sequence[tuple[Point, float | None]], told: Told | None = None, trust: float = 0.8
) -> HeadStart:
    """A head start from one study of `TRAINING` that measured this."""
    start = head_start(study, told)
    [source] = start.similar
    profile = replace(
        source.profile, model=TRAINING.model, device="cuda", gpu_name="NVIDIA H200", seq_len=TRAINING.seq_len
    )
    start.similar = (replace(source, records=tuple(measured(*trials)), profile=profile, trust=trust),)
    return start


def test_speeds_that_lead_astray_here_are_dropped_and_told(study: Study) -> None:
    told = Told()
    start = of_training(study, fast_at(SPACE[::2], 0.4), told, trust=0.3)
    assert start.next_point([], SPACE, need) is None  # so little trusted, a study's point is worth no trial
    here = measured(*fast_at([SPACE[4], SPACE[9], SPACE[11]], 1.0))
    assert start.taught(here[:1], TRAINING).prior is not None
    assert start.taught(here, TRAINING) is NOTHING
    assert "off what it leads to expect" in told.lines[-1] and "not used any more" in told.lines[-1]
    # Once dropped it stays so, and the report says why.
    assert start.taught(here[:1], TRAINING) is NOTHING
    assert reuse_json(study)["reuse_left"] == 0.0


def test_a_study_that_prefers_the_reverse_costs_no_trial_and_is_told(study: Study) -> None:
    told = Told()
    expected = fast_at(SPACE[::2], 1.0)
    most = max(speed for _, speed in expected)
    start = of_training(study, [(point, most * 1000.0 / speed) for point, speed in expected], told)
    assert start.next_point([], SPACE, need, TRAINING) is None
    assert start.taught([], TRAINING) is NOTHING
    told_once = "source is left out: its speeds are not what such configurations can have"
    assert told.lines == [told_once]
    known = reuse_json(study)
    assert (known["reuse"], known["reuse_left"], known["reuse_disagreement"]) == ([], 0.0, told_once)
    assert start.used == () and len(start.similar) == 1
    # As it is, it is believed.
    assert of_training(study, expected, told).next_point([], SPACE, need, TRAINING) is not None


def test_an_order_is_a_reverse_only_where_speeds_are_told_apart(study: Study) -> None:
    ranked = sorted(fast_at(SPACE, 1.0), key=lambda one: one[1])
    # The faster ones, a third apart: so little that coefficients could say the reverse, too.
    expected, best = dict(ranked), ranked[-1][1]
    spread = [point for point, speed in ranked if speed > best / 1.35]
    middle = float(np.median([expected[point] for point in spread]))
    turned = [(point, middle * (middle / expected[point]) ** 0.8) for point in spread]
    start = of_training(study, turned)
    start.taught([], TRAINING)
    assert start.used == ()
    # The same order of speeds that no clock tells apart is none.
    fastest = [point for point, _ in ranked[-4:]]
    alike = [(point, best * (1.0 - 0.001 * row)) for row, point in enumerate(fastest)]
    start = of_training(study, alike)
    start.taught([], TRAINING)
    assert len(start.used) == 1


def test_a_point_that_another_process_is_measuring_counts_as_carried_over(study: Study) -> None:
    start = head_start(study)
    first = start.next_point([], SPACE, need)
    assert first is not None
    left = [point for point in SPACE if point != first]
    pending = [Record(0, first, None, None, NOW, None)]
    assert start.next_point([], left, need, None, pending) is None
    # It says nothing yet of whether advice is good.
    assert start.judgement([]).share == 1.0
    own = left[0]
    assert start.first_of_its_own(pending, left, lambda records, candidates: own) == own


def test_what_is_compared_with_is_what_the_search_would_have_begun_with(study: Study) -> None:
    start = head_start(study)
    first = start.next_point([], SPACE, need)
    assert first is not None
    asked: list[tuple[int, bool]] = []

    def begins_with(point: Point) -> Any:
        def propose(records: Sequence[Record], candidates: Sequence[Point]) -> Point:
            asked.append((len(records), first in candidates))
            return point

        return propose

    own = next(point for point in SPACE if point != first)
    left = [point for point in SPACE if point != first]
    trials = measured((first, 100.0))
    assert start.first_of_its_own([], SPACE, begins_with(own)) is None
    assert start.first_of_its_own(trials, left, begins_with(own)) == own
    # It knows nothing yet, and might have begun with the same.
    assert asked == [(0, True)]
    assert start.first_of_its_own(trials, left, begins_with(first)) is None
    assert start.first_of_its_own(measured((first, 100.0), (own, 90.0)), left[1:], begins_with(own)) is None


def test_speeds_of_a_slower_host_are_those_that_this_one_would_have_had(study: Study) -> None:
    start = head_start(study, points=False, observations=True, knobs=False)
    [source] = start.similar
    as_here = [one.tokens_per_second for one in start.taught([], SMALL).known]
    slow = {"launch_seconds": 2 * CPU_RATES.launch_seconds}
    start = head_start(study, points=False, observations=True, knobs=False)
    start.similar = (replace(source, profile=replace(source.profile, rates=slow)),)
    moved = [one.tokens_per_second for one in start.taught([], SMALL).known]
    assert all(1.0 <= new / old <= 2.0 for new, old in zip(moved, as_here, strict=True))
    assert max(new / old for new, old in zip(moved, as_here, strict=True)) > 1.05


def test_where_nothing_is_predicted_what_was_measured_says_what_fits(study: Study) -> None:
    # Half of the budget would be half of the micro batch, but all of them needed far less.
    start = head_start(study)
    [source] = start.similar
    records = tuple(
        replace(
            record, result=record.result and record.result.model_copy(update={"required_device_bytes": 2})
        )
        for record in source.records
    )
    largest = max(record.point.micro_batch_size for record in records)
    for needed, expected in ((source.records, largest // 2), (records, largest)):
        start = head_start(study)
        start._target = replace(start._target, budget_bytes=start._target.budget_bytes // 2)
        start.similar = (replace(source, records=needed),)
        point = start.next_point([], SPACE, lambda point: None)
        assert point is not None and point.micro_batch_size == expected
        study.set_note("reuse", {"studies": [source.as_json()]})
