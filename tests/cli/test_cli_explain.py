"""`autotune explain`: what it takes, and what it answers with real predictions."""

from __future__ import annotations

import json

import pytest
from cli_process import InProcess
from study_samples import GOOD

from autotune.models import resolve_model
from autotune.prediction.predictor import Predictor
from autotune.study import Study
from trials.wire import Point

STORAGE = ("--storage", "sqlite:///s.db")
POINT = {
    "micro_batch_size": 3,
    "lora_rank": 8,
    "checkpoint_fraction": 1.0,
    "zero_stage": 2,
    "optimizer": "adamw8bit",
}
MODEL = ("--model", "tiny-gpt2", "--seq-len", "256", "--quiet")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "needs a model"),
        (("--model", "tiny-llama"), "--gpu-budget"),
        (("{", "--gpu-budget", "1GB"), "not JSON"),
        (('{"model": "tiny-llama", "zero_stag": 1}', "--gpu-budget", "1GB"), "did you mean zero_stage"),
        (('{"model": "tiny-llama"}', "--model", "x", "--gpu-budget", "1GB"), "both give model"),
        (('{"model": "tiny-llama"}', "--gpu-budget", "1GB", "--gpu-model", "H200"), "both say the budget"),
        (('{"model": "tiny-llama", "offload": "optimizer"}', "--gpu-budget", "1GB"), "ZeRO stage"),
        (("three", *STORAGE), "no trial"),
        (("1", "--zero-stage", "2", *STORAGE), "does not go with a trial"),
        (("9", "--gpu-budget", "1GB", *STORAGE), "no trial 9"),
        (("1", *STORAGE), "ran on the CPU"),
    ],
)
def test_what_cannot_be_explained_is_told_in_two_lines(
    args: tuple[str, ...], words: str, in_process: InProcess, filled: Study
) -> None:
    done = in_process("explain", *args)

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.slow
def test_a_configuration_that_does_not_fit_gets_changes_after_which_it_does(in_process: InProcess) -> None:
    model = resolve_model("tiny-gpt2")
    with Predictor() as predictor:
        needed = predictor.predict(model, 256, Point(**POINT)).required_device_bytes
        # Between what it needs and what one sequence at a time needs.
        least = predictor.predict(model, 256, Point(**{**POINT, "micro_batch_size": 1}))
        budget = (needed + least.required_device_bytes) // 2
        done = in_process("explain", json.dumps(POINT), *MODEL, "--gpu-budget", str(budget), "--json")
        answer = json.loads(done.stdout)
        checked = [
            predictor.predict(model, 256, Point(**remedy["point"])).required_device_bytes
            for remedy in answer["remedies"]
        ]

    assert answer["fits"] is False and answer["required_device_bytes"] == needed
    assert "does not fit" in answer["sentences"][0]
    by_kind = [tuple(sorted(remedy["changes"])) for remedy in answer["remedies"]]
    assert ("gradient_accumulation_steps", "micro_batch_size") in by_kind
    assert all(size <= budget for size in checked)
    # What costs quality comes after what does not, and each group is ordered by the speed that is left.
    keys = [(bool(r["costs_quality"]), -r["relative_speed"]) for r in answer["remedies"]]
    assert keys == sorted(keys)


@pytest.mark.slow
def test_a_trial_that_fits_is_explained_with_what_is_to_spare(in_process: InProcess, filled: Study) -> None:
    done = in_process("explain", "1", *STORAGE, "--gpu-budget", "24GB", "--quiet")

    assert done.returncode == 0, done.stderr
    assert "it fits in 24.0 GiB, with 2" in done.stdout
    assert f"mb {GOOD.micro_batch_size} x ga {GOOD.gradient_accumulation_steps}" in done.stdout
    assert "what would make it fit" not in done.stdout


@pytest.mark.slow
def test_a_budget_below_what_cuda_itself_takes_is_told_at_once(in_process: InProcess) -> None:
    done = in_process("explain", json.dumps(POINT), *MODEL, "--gpu-budget", "1GB")
    assert done.returncode == 0
    assert "nothing can fit" in done.stdout and "outside PyTorch's allocator" in done.stdout
    assert "changes" not in done.stderr
