"""What every sampler keeps to, over the real spaces."""

from __future__ import annotations

import random
import time

import pytest
from synthetic_training import NOW, fits, sampler, search, space_points, train

from autotune.errors import UsageError
from autotune.samplers import SAMPLERS
from autotune.study import Record
from trials.wire import Outcome, Phase, Point, TrialResult

QUICK = space_points("quick")
ALL_SAMPLERS = pytest.mark.parametrize("name", sorted(SAMPLERS))


def failed(number: int, point: Point, outcome: Outcome) -> Record:
    result = TrialResult(trial_id=str(number), outcome=outcome, phase=Phase.START)
    return Record(number, point, result, None, NOW, NOW)


@ALL_SAMPLERS
def test_a_search_proposes_every_point_once(name: str) -> None:
    history = search(sampler(name, QUICK, seed=3), QUICK, trials=100)
    assert sorted(map(repr, (record.point for record in history))) == sorted(map(repr, QUICK))


@ALL_SAMPLERS
def test_only_candidates_are_proposed_however_they_are_thinned_out(name: str) -> None:
    points = space_points("lora")
    history = [train(point, number=number) for number, point in enumerate(points[::40])]
    for seed in range(4):
        candidates = random.Random(seed).sample(points, 25)
        assert sampler(name, points, seed).propose(history, candidates) in candidates


@ALL_SAMPLERS
@pytest.mark.parametrize("tried", [0, 3, 20])
def test_a_proposal_depends_on_the_seed_the_history_and_the_candidates_alone(name: str, tried: int) -> None:
    history = [train(point, number=number) for number, point in enumerate(QUICK[:tried])]
    candidates = QUICK[tried:]
    used = sampler(name, QUICK, seed=5)
    search(used, QUICK, trials=12)
    assert used.propose(history, candidates) == sampler(name, QUICK, seed=5).propose(history, candidates)


@pytest.mark.parametrize("name", ["random", "tpe", "gp"])
def test_seeds_differ(name: str) -> None:
    first = {sampler(name, QUICK, seed).propose([], QUICK) for seed in range(8)}
    assert len(first) > 2


@ALL_SAMPLERS
def test_one_candidate_is_proposed(name: str) -> None:
    history = [train(point, number=number) for number, point in enumerate(QUICK[1:])]
    for records in ([], history):
        assert sampler(name, QUICK, 0).propose(records, QUICK[:1]) == QUICK[0]
    assert sampler(name, QUICK[:1], 0).propose([], QUICK[:1]) == QUICK[0]


@ALL_SAMPLERS
@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome != Outcome.OK])
def test_a_history_without_any_success_is_no_obstacle(name: str, outcome: Outcome) -> None:
    history = [failed(number, point, outcome) for number, point in enumerate(QUICK[:20])]
    assert sampler(name, QUICK, 0).propose(history, QUICK[20:]) in QUICK[20:]


@ALL_SAMPLERS
def test_trials_that_still_run_are_no_obstacle(name: str) -> None:
    history = [train(point, number=number) for number, point in enumerate(QUICK[:20])]
    running = [Record(20 + i, point, None, None, NOW, None) for i, point in enumerate(QUICK[20:23])]
    assert sampler(name, QUICK, 0).propose([*history, *running], QUICK[23:]) in QUICK[23:]


@ALL_SAMPLERS
def test_points_outside_the_space_are_understood(name: str) -> None:
    """A resumed study may hold points that today's space no longer lists."""
    foreign = [Point(micro_batch_size=5 + size, precision="fp32", lora_rank=99) for size in range(12)]
    history = [train(point, number=number) for number, point in enumerate(foreign)]
    assert sampler(name, QUICK, 0).propose(history, QUICK) in QUICK
    assert sampler(name, QUICK, 0).propose(history[:6], foreign[6:]) in foreign[6:]


@ALL_SAMPLERS
def test_a_proposal_among_thousands_takes_moments(name: str) -> None:
    points = space_points("any")
    assert len(points) > 5000
    history = [train(point, number=number) for number, point in enumerate(points[::170])]
    assert sum(fits(record.point) for record in history) > 10
    tried = {record.point for record in history}
    candidates = [point for point in points if point not in tried]
    proposer = sampler(name, points, 0)
    proposer.propose(history, candidates)
    started = time.process_time()
    proposer.propose(history, candidates)
    assert time.process_time() - started < (4.0 if name == "gp" else 1.0)


def test_an_unknown_sampler_is_told() -> None:
    with pytest.raises(UsageError, match="did you mean tpe"):
        sampler("tpee", QUICK, 0)
    with pytest.raises(UsageError, match="one of: physics, tpe, gp, random, grid"):
        sampler("cmaes", QUICK, 0)
