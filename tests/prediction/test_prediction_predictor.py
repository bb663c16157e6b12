"""Predictions of real models: against measurements on an H200, and against what memory must obey."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.models import resolve_model
from autotune.prediction import Prediction, PredictionFailure, PredictionUnavailable, Predictor
from autotune.prediction.events import ROUNDING
from autotune.prediction.worker import TraceWorker
from trials.wire import ModelSpec, Point

# Measured on an H200 with expandable segments: torch.cuda.max_memory_allocated over the training steps; the
# shapes and the bucket of 5e8 elements are those of `benchmarks/memory/h200_memory.jsonl`.
QWEN = ModelSpec(
    name="qwen2.5-0.5b",
    config={
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
)
LLAMA = ModelSpec(
    name="tinyllama-1.1b",
    config={
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
)
TINY = ModelSpec(
    name="tiny",
    config={
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
    },
)
BUCKET = 500_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Iterator[Predictor]:
    with Predictor(cache_dir=folder, workers=1) as made:
        yield made


@pytest.mark.parametrize(
    ("model", "seq_len", "point", "allocated", "reserved"),
    [
        (LLAMA, 1024, {"micro_batch_size": 4, "zero_stage": 2}, 27_163_797_504, 31_996_248_064),
        (QWEN, 1024, {"micro_batch_size": 4, "zero_stage": 3}, 22_112_729_088, 24_429_723_648),
    ],
)
def test_measured_peaks_are_predicted(
    predictor: Predictor, model: ModelSpec, seq_len: int, point: dict[str, Any], allocated: int, reserved: int
) -> None:
    full = Point(gradient_accumulation_steps=2, zero_bucket_elements=BUCKET, **point)
    found = predictor.predict(model, seq_len, full)
    assert found.peak_allocated_bytes == pytest.approx(allocated, rel=1e-4)
    # The measurement emptied the cache before its first step; a trial does not.
    assert found.peak_reserved_bytes == pytest.approx(reserved, rel=0.05)
    assert found.peak_allocated_bytes <= found.required_device_bytes - found.outside_allocator_bytes
    assert found.required_device_bytes <= found.device_bytes


def predict(predictor: Predictor, *, exact: bool = True, seq_len: int = 512, **point: Any) -> Prediction:
    return predictor.predict(TINY, seq_len, Point(**point), exact=exact)


def test_a_padding_mask_that_masks_nothing_is_dropped_as_it_is_when_values_can_be_read(
    predictor: Predictor,
) -> None:
    """OPT makes a mask of its own; with it attention would keep another tensor in every layer.

    Measured on an H200: `benchmarks/memory/h200_own.jsonl`, opt-125m.
    """
    point = Point(micro_batch_size=8, gradient_accumulation_steps=2, lora_rank=8, checkpoint_fraction=0.5)
    assert predictor.predict(resolve_model("opt-125m"), 1024, point).peak_allocated_bytes == 6_373_056_512


@pytest.mark.parametrize(
    "point",
    [
        {},
        {"lora_rank": 8, "quantization": "nf4"},
        {"lora_rank": 8, "quantization": "int8", "checkpoint_fraction": 0.5},
        {"zero_stage": 2, "offload": "optimizer"},
        {"zero_stage": 3, "offload": "optimizer+parameters"},
        {"optimizer": "adamw8bit", "precision": "fp16"},
        {"attention": "eager", "precision": "fp32"},
    ],
    ids=str,
)
def test_breakdown_sums_to_the_peak(predictor: Predictor, point: dict[str, Any]) -> None:
    found = predict(predictor, micro_batch_size=2, **point)
    assert sum(found.breakdown.values()) == found.peak_allocated_bytes
    assert all(size >= 0 for size in found.breakdown.values())
    assert found.breakdown[ROUNDING] < found.peak_allocated_bytes // 20
    assert found.phase in ("forward", "backward", "first_step", "later_step")


def test_states_of_full_fine_tuning_are_what_they_must_be(predictor: Predictor) -> None:
    # 1000 x 256 twice (embedding, head); per layer 256 x (256 + 128 + 128 + 256) for attention, 3 x 256 x 512
    # for the MLP and 2 x 256 for the norms; a last norm.
    parameters = 2 * 256_000 + 4 * (256 * 768 + 3 * 256 * 512 + 512) + 256
    found = predict(predictor, micro_batch_size=1)
    assert found.trainable_parameters == found.total_parameters == parameters
    pieces = found.breakdown
    assert pieces["optimizer state"] == 8 * parameters
    assert pieces["fp32 master weights"] == 4 * parameters
    # Buffers (the rotary frequencies) are weights too.
    assert 0 <= pieces["weights"] - 2 * parameters < 4096


def test_more_sequences_need_more_and_checkpointing_less(predictor: Predictor) -> None:
    peaks = [predict(predictor, micro_batch_size=b).peak_allocated_bytes for b in (1, 2, 4)]
    assert peaks == sorted(peaks) and len(set(peaks)) == 3
    whole = predict(predictor, micro_batch_size=4, checkpoint_fraction=1.0).peak_allocated_bytes
    assert whole < peaks[-1]


@pytest.mark.parametrize("point", [{"zero_stage": 2}, {"lora_rank": 8, "checkpoint_fraction": 0.5}], ids=str)
def test_extrapolated_peaks_are_those_of_the_points_own_traces(
    predictor: Predictor, point: dict[str, Any]
) -> None:
    own = predict(predictor, micro_batch_size=6, **point)
    quick = predict(predictor, exact=False, micro_batch_size=6, **point)
    assert quick.peak_allocated_bytes == own.peak_allocated_bytes
    assert quick.phase_peak_allocated_bytes == own.phase_peak_allocated_bytes


@pytest.mark.parametrize(
    "point",
    [
        {"zero_stage": 1, "checkpoint_fraction": 0.5},
        {"zero_stage": 2, "checkpoint_fraction": 1.0, "optimizer": "adamw8bit"},
        {"lora_rank": 8, "zero_stage": 2, "checkpoint_fraction": 0.25},
    ],
    ids=str,
)
def test_spliced_traces_say_what_the_points_own_say(predictor: Predictor, point: dict[str, Any]) -> None:
    settings = {"micro_batch_size": 4, "gradient_accumulation_steps": 2, **point}
    own = predict(predictor, **settings)
    quick = predict(predictor, exact=False, **settings)
    assert quick.peak_allocated_bytes == pytest.approx(own.peak_allocated_bytes, rel=2e-3)
    assert quick.trainable_parameters == own.trainable_parameters
    assert sum(quick.breakdown.values()) == quick.peak_allocated_bytes


def test_ranks_are_extrapolated_too(predictor: Predictor) -> None:
    own = predict(predictor, micro_batch_size=5, lora_rank=32, zero_stage=1)
    quick = predict(predictor, exact=False, micro_batch_size=5, lora_rank=32, zero_stage=1)
    assert quick.peak_allocated_bytes == own.peak_allocated_bytes
    assert quick.trainable_parameters == own.trainable_parameters
    assert quick.total_parameters == own.total_parameters


def test_kept_traces_say_the_same_without_tracing(predictor: Predictor, folder: Path) -> None:
    point = Point(micro_batch_size=2, lora_rank=8)
    told = predictor.predict(TINY, 128, point)
    kept = {path: path.read_bytes() for path in folder.glob("*.npz")}
    renamed = TINY.model_copy(update={"name": "another name for it"})
    with Predictor(cache_dir=folder, workers=1) as again:
        begun = time.perf_counter()
        assert again.predict(renamed, 128, point) == told
        # Loading the libraries alone takes a tracing process longer.
        assert time.perf_counter() - begun < 1.0
    assert {path: path.read_bytes() for path in folder.glob("*.npz")} == kept


def test_two_gpus_share_the_states(predictor: Predictor) -> None:
    alone = predictor.predict(TINY, 128, Point(zero_stage=2))
    shared = predictor.predict(TINY, 128, Point(zero_stage=2), processes=2)
    states = ("fp32 master weights", "optimizer state")
    for name in states:
        if name in alone.breakdown and name in shared.breakdown:
            assert shared.breakdown[name] == pytest.approx(alone.breakdown[name] / 2, rel=0.01)
    assert shared.peak_allocated_bytes < alone.peak_allocated_bytes


def test_what_cannot_be_traced_says_why(predictor: Predictor) -> None:
    unknown = ModelSpec(name="odd", config={"model_type": "no-such-model"})
    with pytest.raises(PredictionUnavailable, match="no-such-model"):
        predictor.predict(unknown, 128, Point())


def test_a_failure_stands_in_its_place_among_many(predictor: Predictor) -> None:
    points = [Point(), Point(attention="flash_attention_2"), Point(micro_batch_size=2)]
    found = list(predictor.predict_many(TINY, 128, points))
    assert isinstance(found[0], Prediction)
    assert isinstance(found[1], PredictionFailure) and found[1].error
    assert isinstance(found[2], Prediction)


def test_measured_share_outside_the_allocator_wins(predictor: Predictor, folder: Path) -> None:
    shipped = predictor.predict(TINY, 128, Point())
    assert shipped.outside_allocator_bytes == 1942 << 20
    with Predictor(cache_dir=folder, outside_allocator_bytes=7, workers=1) as measured:
        found = measured.predict(TINY, 128, Point())
    assert found.outside_allocator_bytes == 7
    assert found.required_device_bytes == shipped.required_device_bytes - (1942 << 20) + 7
    assert not any("outside the allocator" in note for note in found.notes)


def test_a_prediction_is_plain_json(predictor: Predictor) -> None:
    found = predictor.predict(TINY, 128, Point())
    assert Prediction.model_validate(json.loads(found.model_dump_json())) == found


def test_an_evaluation_with_fused_loss_holds_no_logits(predictor: Predictor) -> None:
    model, tokens = resolve_model("tiny-qwen2"), 8 * 256
    plain, fused = (
        predictor.predict(
            model, 256, Point(micro_batch_size=8, liger_kernel=liger)
        ).phase_peak_allocated_bytes
        for liger in (False, True)
    )
    # Without it there are logits in bf16 and once more in fp32; with it a step needs more than an evaluation.
    assert plain["evaluation"] - fused["evaluation"] > 4 * tokens * int(model.config["vocab_size"])
    assert fused["evaluation"] <= fused["later_step"]


def test_a_model_that_is_refused_is_not_tried_again_for_each_engine_setting(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    ask = TraceWorker.ask

    def counting(worker: TraceWorker, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return ask(worker, request)

    monkeypatch.setattr(TraceWorker, "ask", counting)
    points = [
        Point(micro_batch_size=size, gradient_accumulation_steps=steps, zero_stage=stage, liger_kernel=True)
        for size in (1, 2, 3, 4)
        for steps in (1, 2)
        for stage in (0, 1, 2, 3)
    ]
    found = list(predictor.predict_many(resolve_model("tiny-gpt2"), 64, points))
    assert all(isinstance(one, PredictionFailure) and "no kernels for gpt2" in one.error for one in found)
    assert len(asked) < 8
