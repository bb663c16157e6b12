"""The words for points, speeds and times, and the lines and tables made of them."""

from __future__ import annotations

import pytest

from autotune.display.columns import fields, table
from autotune.display.lines import event_words, trial_line
from autotune.display.words import duration_words, end_words, point_words, speed_words
from trials.wire import Outcome, Phase, Point, TrialResult

MIB = 2**20
POINT = Point(micro_batch_size=4, gradient_accumulation_steps=2, checkpoint_fraction=0.5, lora_rank=16)


def _result(outcome: Outcome, **values: object) -> TrialResult:
    return TrialResult.model_validate(
        {"trial_id": "t", "outcome": outcome, "phase": Phase.LATER_STEP, **values}
    )


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (POINT, "mb 4 x ga 2, zero 0, ckpt 0.5, lora 16"),
        (Point(), "mb 1 x ga 1, zero 0, ckpt 0, full"),
        (
            Point(
                zero_stage=3,
                offload="optimizer+parameters",
                precision="fp16",
                optimizer="adamw8bit",
                attention="eager",
                liger_kernel=True,
                zero_bucket_elements=1_000_000,
                lora_rank=8,
                quantization="nf4",
            ),
            "mb 1 x ga 1, zero 3, ckpt 0, lora 8, offload optimizer+parameters, nf4, adamw8bit, fp16, "
            "eager, liger, bucket 1e+06",
        ),
    ],
)
def test_a_point_in_words_leaves_out_what_is_neutral(point: Point, words: str) -> None:
    assert point_words(point) == words


def test_different_points_have_different_words() -> None:
    points = {
        *(Point(micro_batch_size=size) for size in (1, 2)),
        *(Point(precision=precision) for precision in ("fp16", "fp32")),
        *(Point(checkpoint_fraction=share) for share in (0.25, 0.75, 1.0)),
        *(Point(lora_rank=16, quantization=kind) for kind in ("none", "nf4", "int8")),
        *(Point(optimizer=name) for name in ("adamw8bit", "paged_adamw8bit")),
        *(Point(zero_stage=3, offload=kind) for kind in ("none", "optimizer", "nvme_optimizer+parameters")),
        *(Point(attention=kind) for kind in ("eager", "flash_attention_2")),
        Point(liger_kernel=True),
        Point(zero_stage=1, zero_bucket_elements=5),
        Point(zero_stage=1),
    }

    assert len({point_words(point) for point in points}) == len(points)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (-3, "0s"),
        (59.6, "1m 00s"),
        (45.2, "45s"),
        (725, "12m 05s"),
        (28_740, "7h 59m"),
        (183_600, "2d 03h"),
    ],
)
def test_lengths_of_time_in_words(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_speeds_in_words() -> None:
    assert speed_words(5432.4) == "5,432 tok/s"
    assert speed_words(3.14) == "3.1 tok/s"
    assert speed_words(None) == "-"


def test_a_good_trial_s_line_has_point_memory_speed_and_whether_it_is_the_best() -> None:
    result = _result(
        Outcome.OK, tokens_per_second=5432.0, required_device_bytes=812 * MIB, device_bytes=999 * MIB
    )

    words = trial_line(3, 12, POINT, result, is_best=True).split("  ")
    assert [word.strip() for word in words if word.strip()] == [
        "trial",
        "3/12",
        "ok",
        "mb 4 x ga 2, zero 0, ckpt 0.5, lora 16",
        "812 MiB",
        "5,432 tok/s",
        "best",
    ]


def test_a_failed_trial_s_line_says_where_and_why() -> None:
    oom = _result(
        Outcome.OOM, phase=Phase.BACKWARD, oom_short_bytes=30 * MIB, message="CUDA out of memory. Tried"
    )
    crash = _result(Outcome.CRASH, phase=Phase.LOAD, message="no such module\nTraceback: ...")
    timeout = _result(Outcome.TIMEOUT, phase=Phase.FIRST_STEP)

    assert end_words(oom) == "in backward, 30 MiB short"
    assert end_words(crash) == "in loading the model: no such module"
    assert end_words(timeout) == "in first step"
    for result in (oom, crash, timeout):
        line = trial_line(1, 12, POINT, result, is_best=False)
        assert line.endswith(end_words(result))
        assert result.outcome.value in line
        assert "\n" not in line


def test_events_in_words() -> None:
    step = {"event": "step", "index": 3, "seconds": 0.25, "tokens_per_second": 4096.0, "timed": False}

    assert event_words({"event": "phase", "phase": "start"}) == "starting the engine"
    assert event_words(step) == "step 3: 0.250 s, 4,096 tok/s (warm-up)"
    assert event_words(step | {"timed": True}) == "step 3: 0.250 s, 4,096 tok/s"
    assert event_words({"event": "note", "text": "hello"}) == "hello"


def test_an_event_of_a_later_version_is_no_error() -> None:
    assert "news" in event_words({"event": "news", "what": 1})
    assert event_words({"event": "phase", "phase": "dreaming"}) == "dreaming"


def test_tables_are_aligned_and_never_cut() -> None:
    long = "x" * 200

    assert table(["a", "count"], [["one", "1"], [long, "1000"]], right=(1,)).splitlines() == [
        "a" + " " * 199 + "  count",
        "one" + " " * 197 + "      1",
        long + "   1000",
    ]


def test_fields_without_a_value_are_left_out() -> None:
    assert fields([("a", "1"), ("empty", ""), ("bcd", "2")]) == "a    1\nbcd  2"
    assert fields([]) == ""
