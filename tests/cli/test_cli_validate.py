"""`autotune doctor --validate`: what would be run, and what is made of it; the runs themselves need a GPU."""

from __future__ import annotations

import json

import pytest
from cli_process import Autotune, InProcess

from autotune.display.validations import validation_text
from autotune.planning.configuration import Configuration
from autotune.prediction import Prediction
from autotune.running import default_device
from autotune.space import Capabilities
from autotune.tuning.validation import (
    ADAPTED_LAYERS,
    MOST_OFF,
    all_hold,
    configurations,
    validated,
    validation_json,
)
from trials.wire import Outcome, Phase, Point, TrialResult

GIB = 2**30
FULL = Capabilities(device="cuda", fp16=True, liger=True, bitsandbytes=True)
# llama2-7b with LoRA at micro batch 8, measured on an H200 (benchmarks/memory/h200_memory.jsonl, row 45).
PEAK, SETUP, DEVICE, HOST = 19_611_634_688, 14_196_418_048, 22_747_676_672, 1_873_539_072


def predicted(peak: int = PEAK, device: int = DEVICE) -> Prediction:
    return Prediction(
        peak_allocated_bytes=peak,
        setup_peak_allocated_bytes=SETUP,
        phase_peak_allocated_bytes={"load": SETUP, "start": SETUP, "first_step": peak, "later_step": peak},
        peak_reserved_bytes=peak,
        required_device_bytes=peak + 2 * GIB,
        confirmed_required_device_bytes=peak + 2 * GIB,
        device_bytes=device,
        outside_allocator_bytes=2 * GIB,
        host_peak_bytes=HOST,
        breakdown={"weights": peak},
        phase="backward",
        trainable_parameters=1,
        total_parameters=2,
        exact=True,
    )


def measured(outcome: Outcome = Outcome.OK, message: str = "") -> TrialResult:
    if outcome is not Outcome.OK:
        return TrialResult(trial_id="t", outcome=outcome, phase=Phase.BACKWARD, message=message)
    return TrialResult(
        trial_id="t",
        outcome=outcome,
        phase=Phase.LATER_STEP,
        peak_allocated_bytes=PEAK,
        setup_peak_allocated_bytes=SETUP,
        device_bytes=DEVICE,
        host_peak_bytes=HOST,
        phase_peak_allocated_bytes={"load": SETUP, "first_step": PEAK, "later_step": PEAK},
    )


def one() -> Configuration:
    return configurations(FULL)[0]


def test_a_dozen_configurations_cover_what_prediction_knows_of() -> None:
    found = configurations(FULL)
    points = [configuration.point for configuration in found]
    assert 12 <= len(found) <= 16
    assert len({(c.name, c.point) for c in found}) == len(found)
    assert {point.zero_stage for point in points} == {0, 1, 2, 3}
    assert {point.method for point in points} == {"full", "lora", "qlora"}
    assert {point.precision for point in points} == {"bf16", "fp16", "fp32"}
    assert {point.offload for point in points} == {"none", "optimizer", "optimizer+parameters"}
    assert {point.checkpoint_fraction for point in points} >= {0.0, 0.25, 0.5, 1.0}
    assert {point.optimizer for point in points} == {"adamw", "adamw8bit"}
    assert {point.attention for point in points} == {"sdpa", "eager"}
    assert any(point.liger_kernel for point in points)
    layers = {c.name: c.model.config["num_hidden_layers"] for c in found}
    assert layers == {"smollm2-135m": 30, "qwen2.5-0.5b": ADAPTED_LAYERS}


def test_what_the_machine_cannot_do_is_left_out() -> None:
    bare = configurations(Capabilities(device="cuda", fp16=True))
    assert not [
        c
        for c in bare
        if c.point.quantization != "none" or c.point.optimizer != "adamw" or c.point.liger_kernel
    ]
    old = configurations(Capabilities(device="cuda", bf16=False, fp16=True, liger=True, bitsandbytes=True))
    assert {c.point.precision for c in old} == {"fp16", "fp32"}


def test_a_peak_within_a_percent_holds_and_beyond_it_does_not() -> None:
    within = validated(one(), predicted(int(PEAK * 1.0099)), measured())
    beyond = validated(one(), predicted(int(PEAK * 0.9899)), measured())
    elsewhere = validated(one(), predicted(device=int(DEVICE * 1.2)), measured())

    assert within.holds and elsewhere.holds and not beyond.holds
    assert all_hold([within, elsewhere]) and not all_hold([within, beyond])


def test_what_did_not_run_or_was_not_predicted_does_not_hold() -> None:
    crashed = validated(one(), predicted(), measured(Outcome.CRASH, "no kernel\nfor this GPU"))
    unknown = validated(one(), "no meta kernel", None)

    assert crashed.problem == "the run ended in crash: no kernel for this GPU"
    assert unknown.problem == "cannot be predicted: no meta kernel"
    assert not all_hold([crashed]) and not all_hold([unknown])


def test_the_table_has_a_line_for_each_and_says_what_it_comes_to() -> None:
    good = validated(one(), predicted(device=int(DEVICE * 1.02)), measured())
    bad = validated(one(), predicted(int(PEAK * 1.05)), measured())
    lost = validated(one(), "no meta kernel", None)

    lines = validation_text([good, bad, lost], MOST_OFF).splitlines()

    assert lines[0].split() == [
        "configuration", "predicted", "measured", "peak", "setup", "needs", "device", "host",
    ]  # fmt: skip
    assert lines[1].startswith("ok") and "18.3 GiB" in lines[1] and lines[1].endswith("+0.00 %")
    assert "+2.00 %" in lines[1]
    assert lines[2].startswith("OFF") and "+5.00 %" in lines[2]
    assert lines[3].startswith("OFF") and "cannot be predicted: no meta kernel" in "\n".join(lines[4:])
    assert lines[-1] == "2 of 3 configurations were not predicted to within 1%"
    assert validation_text([good], MOST_OFF).endswith("all 1 peaks were predicted to within 1%")


def test_the_object_holds_every_figure() -> None:
    answer = validation_json("NVIDIA H200", {"torch": "2.11.0"}, [validated(one(), predicted(), measured())])

    assert json.loads(json.dumps(answer)) == answer
    assert answer["validated"] is True and answer["gpu"] == "NVIDIA H200"
    [row] = answer["rows"]
    assert row["compared"]["peak_allocated_bytes"] == {
        "predicted_bytes": PEAK, "measured_bytes": PEAK, "off": 0.0,
    }  # fmt: skip
    assert Point.model_validate({name: row[name] for name in Point.model_fields}) == one().point


@pytest.mark.skipif(default_device() == "cuda", reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_validate(in_process: InProcess) -> None:
    done = in_process("doctor", "--validate", "--json")

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-2].startswith(
        "error: predictions are compared with runs on an NVIDIA GPU"
    )


@pytest.mark.gpu
@pytest.mark.slow
def test_predictions_hold_on_this_gpu(autotune: Autotune) -> None:
    done = autotune("doctor", "--validate", "--json")

    answer = json.loads(done.stdout)
    assert [row["problem"] for row in answer["rows"] if row["problem"]] == [], done.stderr
    assert {row["zero_stage"] for row in answer["rows"]} == {0, 1, 2, 3}
    assert answer["validated"] is True, answer
    assert done.returncode == 0
    assert list((autotune.folder / "data" / "autotune").glob("machine.json"))
