"""What measuring could still gain, what it costs, what fits: and so what is measured next."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import BUDGETS_GIB, GIB, grid, unseen_prior

from autotune.models import resolve_model
from autotune.throughput import Belief, Observation, Training, Worked
from autotune.throughput.advisor import Advisor
from autotune.throughput.cost import Builds, measuring_seconds
from autotune.throughput.gain import best_row, expected_gain, remaining_gain
from autotune.throughput.room import Tried, chance_of_room, rough_needs
from autotune.throughput.seen import Seen, seen_of
from trials.wire import Outcome, Phase, Point, TrialResult


def some_belief() -> tuple[Belief, np.ndarray, int]:
    measured = grid().measured
    points = list(measured)
    observed = [Observation(point, measured[point], 0.05) for point in points[:4]]
    belief = Belief(Worked(grid().training, points), observed, unseen_prior())
    return belief, np.arange(4, len(points)), best_row(belief, np.arange(4))


def test_the_expected_gain_is_what_drawing_from_the_belief_gives() -> None:
    belief, rows, best = some_belief()
    gains = expected_gain(belief, rows, best)
    both = np.append(rows, best)
    logs = np.random.default_rng(1).multivariate_normal(belief.mean[both], belief.covariance(both), 40_000)
    drawn = np.maximum(np.exp(logs[:, :-1] - logs[:, -1:]) - 1, 0).mean(axis=0)
    assert gains == pytest.approx(drawn, rel=0.05, abs=2e-4)


def test_what_is_left_is_at_least_the_best_point_s_gain_and_shrinks_with_the_chance_to_fit() -> None:
    belief, rows, best = some_belief()
    everything = remaining_gain(belief, rows, best)
    assert everything.share >= expected_gain(belief, rows, best).max() - 0.005
    unlikely = remaining_gain(belief, rows, best, chance=np.full(len(rows), 0.1))
    assert unlikely.share < everything.share and unlikely.beaten < everything.beaten
    nothing = remaining_gain(belief, rows, best, chance=np.zeros(len(rows)))
    assert (nothing.share, nothing.beaten) == (0.0, 0.0)
    assert remaining_gain(belief, rows[:0], best).points == 0


def test_a_larger_margin_is_beaten_less_often() -> None:
    belief, rows, best = some_belief()
    beaten = [remaining_gain(belief, rows, best, margin=margin).beaten for margin in (0.0, 0.05, 0.5, 5.0)]
    assert beaten == sorted(beaten, reverse=True)


def test_the_chance_of_being_beaten_is_about_how_often_it_happens() -> None:
    """On the grid, under every budget, after four measurements of which at least one was a good guess."""
    measured = grid().measured
    random = np.random.default_rng(0)
    thought, happened = [], []
    for budget in BUDGETS_GIB:
        points = [p for p in measured if (grid().rows[p].required_device_bytes or 0) <= budget * GIB]
        space = Worked(grid().training, points)
        for _ in range(12):
            chosen = random.choice(len(points), 4, replace=False)
            observed = [Observation(points[row], measured[points[row]], 0.05) for row in chosen]
            belief = Belief(space, observed, unseen_prior())
            best = best_row(belief, chosen)
            others = np.setdiff1d(np.arange(len(points)), chosen)
            thought.append(remaining_gain(belief, others, best, margin=0.05).beaten)
            most = max(measured[points[row]] for row in others)
            happened.append(most > 1.05 * measured[points[best]])
    assert np.mean(thought) == pytest.approx(np.mean(happened), abs=0.1)
    # Where it was thought unlikely it was rare, and where likely frequent.
    thought_of, was = np.array(thought), np.array(happened)
    assert was[thought_of < 0.2].mean() < 0.35 and was[thought_of > 0.8].mean() > 0.8


def test_a_point_on_the_engine_that_lives_costs_its_steps_alone() -> None:
    belief, rows, _ = some_belief()
    build = belief.points[0].build
    cold, warm = (measuring_seconds(belief, rows, Builds(live)) for live in (None, build))
    assert (cold - warm).min() > 5.0
    measured = measuring_seconds(belief, rows, Builds(None, {build: 31.0}))
    assert measured - warm == pytest.approx(30.7)


def test_an_out_of_memory_warns_of_what_needs_more_and_a_fit_speaks_for_what_needs_less() -> None:
    needs = np.array([1.0, 2.0, 4.0, 8.0]) * GIB
    plain = chance_of_room(needs, [], limit_bytes=4 * GIB)
    assert plain[0] > 0.95 and plain[2] == pytest.approx(0.5, abs=0.05) and plain[3] < 0.15
    assert (np.diff(plain) < 0).all()
    failed = chance_of_room(needs, [Tried(2 * GIB, False)], limit_bytes=4 * GIB)
    assert (failed < plain).all() and failed[3] < 0.02
    fitted = chance_of_room(needs, [Tried(8 * GIB, True)], limit_bytes=4 * GIB)
    assert (fitted > plain).all() and fitted[2] > 0.8
    assert chance_of_room(needs, [Tried(GIB, True)], limit_bytes=None) == pytest.approx(1.0)
    unknown = chance_of_room(needs, [Tried(GIB, True), Tried(4 * GIB, False)], limit_bytes=None)
    assert unknown[0] > 0.8 and unknown[3] < 0.1


def test_rough_needs_grow_and_shrink_as_memory_does() -> None:
    training = Training(resolve_model("llama2-7b"), 1024)
    point = Point(micro_batch_size=4, lora_rank=16)
    more = [{"micro_batch_size": 8}, {"lora_rank": 0}, {"precision": "fp32"}, {"lora_rank": 64}]
    less = [{"checkpoint_fraction": 1.0}, {"quantization": "nf4"}, {"liger_kernel": True}]
    rough = rough_needs(training, [point, *(point.model_copy(update=one) for one in [*more, *less])])
    assert (rough[1:5] > rough[0]).all() and (rough[5:] < rough[0]).all()
    # Measured: 15.7 GiB of weights' and activations' peak (h200_memory.jsonl, zero 0, micro batch 4).
    checkpointed = rough_needs(training, [point.model_copy(update={"checkpoint_fraction": 1.0})])[0]
    assert checkpointed == pytest.approx(16.9e9, rel=0.25)


def result(outcome: Outcome, **values: float) -> TrialResult:
    return TrialResult(trial_id="t", outcome=outcome, phase=Phase.LATER_STEP, **values)


def test_every_outcome_teaches_what_it_can() -> None:
    point = Point()
    ok = result(Outcome.OK, tokens_per_second=100.0, tokens_per_second_low=90.0, tokens_per_second_high=110.0)
    assert seen_of(point, ok).noise == pytest.approx(np.log(110 / 90) / 3.92)
    stopped = seen_of(point, result(Outcome.STOPPED, tokens_per_second=50.0))
    assert stopped.tokens_per_second == 50.0 and stopped.noise > seen_of(point, ok).noise
    disturbed = ok.model_copy(update={"disturbed": "another process used the GPU"})
    assert seen_of(point, disturbed).noise > 2 * seen_of(point, ok).noise
    reused = ok.model_copy(update={"build": "reused", "setup_seconds": 0.2})
    assert seen_of(point, reused).setup_seconds is None
    assert seen_of(point, result(Outcome.OOM)) == Seen(point, fitted=False)
    assert seen_of(point, result(Outcome.TIMEOUT)) == Seen(point, fitted=True)
    assert seen_of(point, result(Outcome.CRASH)) == Seen(point)
    assert seen_of(point, None) == Seen(point, running=True)


def advisor() -> tuple[Advisor, list[Point]]:
    points = list(grid().measured)
    return Advisor(grid().training, points, prior=unseen_prior()), points


def test_the_first_proposal_is_the_fastest_believed() -> None:
    adviser, points = advisor()
    belief = adviser.belief([])
    assert adviser.propose([], points) == points[int(np.argmax(belief.mean))]


def test_what_runs_now_is_not_looked_at_again_next_door() -> None:
    """Of two points that are as good as one, the other is worth little while the first is being measured."""
    training = Training(resolve_model("qwen2.5-1.5b"), 1024)
    first = Point(micro_batch_size=8, gradient_accumulation_steps=4, lora_rank=16)
    twin = first.model_copy(update={"checkpoint_fraction": 0.01})
    stranger = first.model_copy(update={"zero_stage": 2, "liger_kernel": True})
    adviser = Advisor(training, [first, twin, stranger])
    seen = [
        Seen(Point(micro_batch_size=2, gradient_accumulation_steps=16, lora_rank=16), 10_000.0, fitted=True)
    ]
    running = [*seen, Seen(first, running=True)]
    alone, beside = (adviser.belief(history, [], imagined=True) for history in (seen, running))
    shrunk = (beside.deviation / alone.deviation)[alone.rows_of([twin, stranger])]
    assert shrunk[0] < 0.5 < shrunk[1]
    assert adviser.propose(running, [twin, stranger]) == stranger


def test_a_point_that_needs_more_than_one_that_failed_is_put_off() -> None:
    adviser, points = advisor()
    small, large = points[0], max(points, key=lambda p: (p.micro_batch_size, -p.checkpoint_fraction))
    failed = [Seen(small, grid().measured[small], fitted=True), Seen(large, fitted=False)]
    chance = dict(zip(points, adviser.chance(failed, points), strict=True))
    assert chance[small] > 0.8 and chance[large] < 0.3
    assert adviser.propose(failed, points[1:]) != large


def test_cheap_news_come_first_among_equally_promising_points() -> None:
    """Two builds that physics cannot tell apart: the one whose engine lives is asked first."""
    training = Training(resolve_model("qwen2.5-1.5b"), 1024)
    live = [Point(micro_batch_size=m, lora_rank=16, gradient_accumulation_steps=8) for m in (4, 8)]
    other = [point.model_copy(update={"zero_bucket_elements": 10**6}) for point in live]
    adviser = Advisor(training, [*live, *other])
    seen = [Seen(live[0], 15_000.0, fitted=True, setup_seconds=9.0)]
    assert adviser.propose(seen, [other[1], live[1]]) == live[1]
    assert adviser.propose(seen, [live[1], other[1]]) == live[1]


def test_what_was_measured_elsewhere_decides_what_is_measured_first_and_no_more() -> None:
    measured = grid().measured
    points = list(measured)
    first = Advisor(grid().training, points, prior=unseen_prior()).propose([], points)
    # Elsewhere everything was as here, but for the one that is believed the fastest.
    there = measured | {first: 0.5 * measured[first]}
    known = [Observation(point, speed, 0.05) for point, speed in there.items()]
    advisor = Advisor(grid().training, points, prior=unseen_prior(), known=known)
    # What is like it is doubted a little too.
    assert advisor.propose([], points) != first
    assert measured[advisor.propose([], points)] >= 0.8 * max(there.values())
    # It is no measurement of this search: nothing is left to gain before there is one.
    assert advisor.remaining([], points, 0.01) is None
