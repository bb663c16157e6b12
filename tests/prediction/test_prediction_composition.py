"""What is put together from few layers and a skeleton must be what a whole trace says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.prediction import Predictor
from autotune.prediction.events import ROUNDING
from autotune.prediction.predictor import Prediction
from trials.wire import ModelSpec, Point

# Seven layers: more than are copied, and not a multiple of what a checkpointed share divides.
SEVEN = ModelSpec(
    name="seven",
    config={
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 7,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 4000,
        "max_position_embeddings": 2048,
    },
)
SEQ_LEN = 1024


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Predictor]:
    with Predictor(cache_dir=tmp_path_factory.mktemp("traces"), workers=2) as made:
        yield made


@pytest.mark.parametrize(
    "point",
    [
        {"micro_batch_size": 6, "checkpoint_fraction": 0.5, "gradient_accumulation_steps": 2},
        {
            "micro_batch_size": 1,
            "zero_stage": 2,
            "checkpoint_fraction": 1.0,
            "gradient_accumulation_steps": 2,
        },
        {"micro_batch_size": 5, "zero_stage": 1, "offload": "optimizer", "optimizer": "adamw"},
        {"micro_batch_size": 4, "zero_stage": 3, "optimizer": "adamw8bit", "checkpoint_fraction": 0.25},
        {"micro_batch_size": 4, "lora_rank": 16, "quantization": "nf4", "checkpoint_fraction": 0.75},
        {"micro_batch_size": 6, "lora_rank": 16, "liger_kernel": True, "zero_stage": 2},
    ],
    ids=str,
)
def test_parts_add_up_to_the_whole(predictor: Predictor, point: dict[str, Any]) -> None:
    wanted = Point(**point)
    assert predictor.is_shared(SEVEN, SEQ_LEN, wanted)
    shared = predictor.predict(SEVEN, SEQ_LEN, wanted, exact=False)
    whole = predictor.predict(SEVEN, SEQ_LEN, wanted, exact=True)
    assert shared.peak_allocated_bytes == pytest.approx(whole.peak_allocated_bytes, rel=1e-6)
    assert shared.setup_peak_allocated_bytes == whole.setup_peak_allocated_bytes
    for phase in ("first_step", "later_step", "saving"):
        theirs = whole.phase_peak_allocated_bytes[phase]
        assert shared.phase_peak_allocated_bytes[phase] == pytest.approx(theirs, rel=1e-5), phase
    assert shared.phase == whole.phase
    assert (shared.trainable_parameters, shared.total_parameters) == (
        whole.trainable_parameters,
        whole.total_parameters,
    )
    assert sum(shared.breakdown.values()) == shared.peak_allocated_bytes
    assert abs(shared.breakdown[ROUNDING] - whole.breakdown[ROUNDING]) < 1 << 20
    assert not shared.exact and not shared.estimated


def test_a_third_rank_follows_from_two(predictor: Predictor) -> None:
    points = [Point(micro_batch_size=2, lora_rank=rank, checkpoint_fraction=1.0) for rank in (16, 64, 128)]
    found = list(predictor.predict_many(SEVEN, SEQ_LEN, points))
    whole = predictor.predict(SEVEN, SEQ_LEN, points[-1])
    last = found[-1]
    assert isinstance(last, Prediction)
    assert last.peak_allocated_bytes == pytest.approx(whole.peak_allocated_bytes, rel=1e-6)
    assert last.trainable_parameters == whole.trainable_parameters


def test_parameters_off_the_device_are_estimated(predictor: Predictor) -> None:
    point = Point(micro_batch_size=4, zero_stage=3, offload="optimizer+parameters", checkpoint_fraction=0.5)
    shared = predictor.predict(SEVEN, SEQ_LEN, point, exact=False)
    whole = predictor.predict(SEVEN, SEQ_LEN, point, exact=True)
    assert shared.estimated
    assert shared.peak_allocated_bytes == pytest.approx(whole.peak_allocated_bytes, rel=0.05)
    assert sum(shared.breakdown.values()) == shared.peak_allocated_bytes


def test_layers_that_differ_are_traced_whole(predictor: Predictor) -> None:
    # Every other layer of Gemma 2 sees a window: no layer stands for all.
    gemma = ModelSpec(
        name="gemma2",
        config={**SEVEN.config, "model_type": "gemma2", "head_dim": 64, "sliding_window": 512},
    )
    point = Point(micro_batch_size=2, lora_rank=8)
    shared = predictor.predict(gemma, SEQ_LEN, point, exact=False)
    whole = predictor.predict(gemma, SEQ_LEN, point, exact=True)
    assert shared.peak_allocated_bytes == whole.peak_allocated_bytes


def test_few_traces_serve_both_a_whole_and_a_partitioned_engine(tmp_path: Path) -> None:
    """Gradients of biases arrive in another order under ZeRO-3: each engine is told its own."""
    biased = SEVEN.model_copy(update={"config": {**SEVEN.config, "model_type": "qwen2"}})
    points = [
        Point(micro_batch_size=size, checkpoint_fraction=share, zero_stage=stage)
        for stage in (0, 3)
        for size in (1, 2, 3, 4, 6, 8)
        for share in (0, 0.5, 1)
    ]
    with Predictor(cache_dir=tmp_path, workers=2) as predictor:
        made = list(predictor.predict_many(biased, SEQ_LEN, points))
    assert all(isinstance(one, Prediction) for one in made)
    # One trace of a few layers and one of the engine, for each of the two.
    assert len(list(tmp_path.rglob("*.npz"))) == 4


def test_kept_predictions_need_no_trace(tmp_path: Path) -> None:
    point = Point(micro_batch_size=2, lora_rank=8)
    with Predictor(cache_dir=tmp_path, workers=1) as first:
        told = first.predict(SEVEN, 128, point)
    for trace in tmp_path.glob("*.npz"):
        trace.unlink()
    with Predictor(cache_dir=tmp_path, workers=1) as again:
        assert again.predict(SEVEN, 128, point) == told
    assert not list(tmp_path.glob("*.npz"))
