"""Points predicted in a thread beside the search."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prediction_samples import GIB, Heard, make_foresight

from autotune.models import resolve_model
from autotune.prediction import PointPredictor, Prediction, Predictor
from autotune.prediction.errors import WorkerDied
from autotune.prediction.pool import PoolShare, WorkerPool
from autotune.tuning import foresight as foresight_module
from autotune.tuning.background import Background
from trials.wire import Point

TINY = resolve_model("tiny-llama")
SEQ_LEN = 128
ONES = [Point(micro_batch_size=size, lora_rank=8) for size in (1, 2, 3, 4)]
TWOS = [Point(micro_batch_size=size, lora_rank=8, zero_stage=2) for size in (1, 2, 3, 4)]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Predictor]:
    folder = tmp_path_factory.mktemp("traces")
    with Predictor(gpu="9.0", cache_dir=folder, workers=2) as made:
        yield made


def everything(background: Background) -> dict[Point, object]:
    while not background.is_done:
        background.wait(60)
    return dict(background.take())


def test_groups_come_as_they_are_predicted_elsewhere_and_wanted_points_by_their_own_traces(
    predictor: Predictor,
) -> None:
    points = PointPredictor(predictor, TINY, SEQ_LEN, None, 1)
    background = Background(points, [ONES, TWOS], 2)
    found = everything(background)
    assert list(found) == [*ONES, *TWOS]
    background.want(TWOS[2:])
    closer = everything(background)
    background.close()
    assert found == dict(zip([*ONES, *TWOS], points.many([*ONES, *TWOS]), strict=True))
    assert closer == {point: points.exact(point) for point in TWOS[2:]}
    assert all(isinstance(one, Prediction) and one.exact for one in closer.values())
    assert background.error is None


def test_what_is_traced_may_be_cut_short_and_the_processes_serve_others_afterwards(
    predictor: Predictor,
) -> None:
    points = PointPredictor(predictor, TINY, 256, None, 1)
    background = Background(points, [ONES, TWOS], 1)
    time.sleep(0.3)
    began = time.monotonic()
    background.close()
    assert time.monotonic() - began < 10
    assert background.is_done
    assert background.take() == [], "what was cut short looks like what cannot be predicted"
    assert points.exact(ONES[0]).peak_allocated_bytes > 0


def test_a_share_takes_no_more_than_its_limit_and_nothing_once_it_is_closed() -> None:
    share = PoolShare(WorkerPool(1, 2), 1)
    with share.one():
        share.close()
    with pytest.raises(WorkerDied):
        share.take()


def test_what_is_not_predicted_when_trials_begin_is_predicted_while_they_run(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foresight_module, "AHEAD_SECONDS", 0.0)
    monkeypatch.setattr(foresight_module, "workers_beside_trials", lambda: 1)
    heard = Heard()
    foresight = make_foresight(tmp_path, budget_bytes=8 * GIB, model=TINY, predictor=predictor, say=heard)
    points = [
        Point(micro_batch_size=size, lora_rank=rank, zero_stage=stage)
        for size in (1, 2)
        for rank, stage in ((0, 0), (0, 3), (8, 0), (8, 3))
    ]
    foresight.look(points)
    assert any("predicted while trials run" in text for text in heard)
    until = time.monotonic() + 120
    while any(foresight.made(point) is None for point in points) and time.monotonic() < until:
        time.sleep(0.2)
        foresight.chances(points)
    foresight.close()
    assert all(foresight.made(point) is not None for point in points)
