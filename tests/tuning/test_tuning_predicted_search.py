"""A search with predictions: what is not launched, what is said of it, what the same command does again."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from prediction_samples import GIB, MIB, OUTSIDE_BYTES, h200, make_foresight, prediction
from session_samples import make_session, make_task
from tuning_samples import add, empty_study, trial_result

from autotune.display.lines import Lines
from autotune.display.results import shortfall_words
from autotune.errors import ExitCode
from autotune.planning.outlook import Budgets
from autotune.prediction import Prediction, Predictor
from autotune.running import Machine, OutsideShare
from autotune.study import Study
from autotune.tuning.completion import is_searched, note_searched
from autotune.tuning.findings import RunResult, findings_of
from autotune.tuning.foresight import Foresight
from autotune.tuning.predicting import foresight_of
from autotune.tuning.readiness import Ready
from autotune.tuning.search import Ending, search
from autotune.tuning.shortfall import PredictedShortfall, known_shortfall, predict_shortfall
from autotune.tuning.task import Task
from trials.wire import Outcome


def needing(size_bytes: int) -> Prediction:
    """A prediction of a configuration that needs so much of the device."""
    peak = size_bytes - 20 * MIB - OUTSIDE_BYTES
    return prediction({"load": GIB, "start": GIB, "first_step": peak, "later_step": peak})


def foresee_all(folder: Path, task: Task, size_bytes: int) -> Foresight:
    """Every point of the task needs so much, times its micro batch."""
    foresight = make_foresight(folder, budget_bytes=task.budget.size_bytes, model=task.model)
    for stage in task.stages:
        for point in stage.points:
            foresight.know(point, needing(size_bytes * point.micro_batch_size))
    return foresight


def test_where_nothing_is_predicted_to_fit_nothing_is_launched(tmp_path: Path) -> None:
    task = make_task(tmp_path, "qlora", budget_bytes=8 * GIB)
    session, _ = make_session(tmp_path, task, foresee_all(tmp_path, task, 9 * GIB))

    ending = search(session)

    assert ending is Ending.EXHAUSTED
    assert session.study.records() == ()
    assert findings_of(session.study).skipped == 2
    assert not (tmp_path / "no-such-folder").exists()


def test_auto_falls_from_lora_to_qlora_by_prediction_and_says_so(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", "qlora", budget_bytes=8 * GIB)
    session, lines = make_session(tmp_path, task, foresee_all(tmp_path, task, 9 * GIB))

    search(session)

    [fall] = [line for line in lines.getvalue().splitlines() if "trying qlora" in line]
    assert fall == (
        "no lora configuration is predicted to fit 8.0 GiB "
        "(the nearest needs 9.0 GiB of 8.0 GiB: weights 7.1 GiB): trying qlora"
    )
    assert findings_of(session.study).skipped == 4


def test_what_is_missing_is_said_from_the_prediction(tmp_path: Path) -> None:
    task = make_task(tmp_path, "qlora", budget_bytes=8 * GIB)
    session, _ = make_session(tmp_path, task, foresee_all(tmp_path, task, 9 * GIB))
    search(session)

    found = predict_shortfall(session)

    assert found is not None
    assert (found.limit, found.needed_bytes, found.point.micro_batch_size) == ("device", 9 * GIB, 1)
    assert known_shortfall(session.study) == found
    result = RunResult(findings_of(session.study), 1.0, None, found, interrupted=False)
    answer = result.as_json()
    assert result.exit_code is ExitCode.NOTHING_FITS
    assert answer["smallest_needed_bytes"] == 9 * GIB and answer["skipped"] == 2
    assert sum(answer["trials"].values()) == 0
    message, hint = shortfall_words(result)
    assert message == "nothing fits 8.0 GiB; trials: 0; 2 never launched, predicted not to fit"
    assert hint.startswith("the nearest, mb 1 x ga 8") and "needs 9.0 GiB of 8.0 GiB" in hint


def test_a_method_that_would_fit_is_named(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    point = make_task(tmp_path, "lora").stages[0].points[0]
    found = PredictedShortfall(point, "device", 9 * GIB, GIB, "needs 9.0 GiB of 8.0 GiB", {"qlora": 5 * GIB})
    result = RunResult(findings_of(study), 1.0, None, found, interrupted=False)

    assert shortfall_words(result)[1].endswith("; --method qlora would fit in 5.0 GiB")
    assert result.as_json()["other_methods"] == {"qlora": 5 * GIB}


@pytest.mark.slow
def test_which_method_would_fit_is_predicted_for_this_machine(tmp_path: Path, predictor: Predictor) -> None:
    # Full fine-tuning is taken to need far too much; what LoRA needs of tiny-llama is really traced.
    task = make_task(tmp_path, "full", budget_bytes=3 * GIB)
    # Few points: no quantization, one rank, no fused kernels, all layers checkpointed or none.
    few = dataclasses.replace(task.setting.capabilities, liger=False, bitsandbytes=False)
    setting = dataclasses.replace(task.setting, capabilities=few, min_rank=64, trainer="trl")
    task = dataclasses.replace(task, setting=setting)
    foresight = make_foresight(tmp_path, budget_bytes=3 * GIB, model=task.model, predictor=predictor)
    for point in task.stages[0].points:
        foresight.know(point, needing(30 * GIB))
    session, _ = make_session(tmp_path, task, foresight)

    found = predict_shortfall(session)

    assert found is not None
    assert set(found.other_methods) == {"lora"}
    assert OUTSIDE_BYTES < found.other_methods["lora"] <= 3 * GIB


def test_while_some_point_may_fit_nothing_is_said_to_be_missing(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", budget_bytes=10 * GIB)
    session, _ = make_session(tmp_path, task, foresee_all(tmp_path, task, 9 * GIB))
    assert predict_shortfall(session) is None
    session, _ = make_session(tmp_path, task, None)
    assert predict_shortfall(session) is None


def test_a_model_that_cannot_be_predicted_is_measured_as_before(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora")
    blocked = tmp_path / "file"
    blocked.write_text("")
    # Where traces would be kept there is a file.
    foresight = make_foresight(blocked / "x", budget_bytes=task.budget.size_bytes, model=task.model)
    session, lines = make_session(tmp_path, task, foresight)

    session.foresee(task.stages[0].points)

    assert session.foresight is None
    assert "memory cannot be predicted here" in lines.getvalue()
    assert session.may_fit(task.stages[0].points) == list(task.stages[0].points)
    assert session.decide(task.stages[0].points[0])


def test_a_finished_search_is_not_begun_again_unless_something_changed(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", budget_bytes=8 * GIB)
    study: Study = empty_study(tmp_path)
    assert not is_searched(study, task)

    note_searched(study, task, host_limited=False)
    assert is_searched(study, task)
    assert not is_searched(study, make_task(tmp_path, "lora", "qlora"))
    add(study, task.stages[0].points[0], trial_result(outcome=Outcome.OOM))
    assert not is_searched(study, task)


def test_more_free_host_memory_is_a_reason_to_look_again(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora")
    study = empty_study(tmp_path)
    note_searched(study, task, host_limited=True)
    assert is_searched(study, dataclasses.replace(task, host_budget_bytes=task.host_budget_bytes - 1))
    assert not is_searched(study, dataclasses.replace(task, host_budget_bytes=task.host_budget_bytes + 1))


def test_on_a_gpu_there_is_foresight_with_a_warning_of_other_versions_and_on_the_cpu_none(
    tmp_path: Path,
) -> None:
    def opened(machine: Machine) -> tuple[Foresight | None, str]:
        lines = io.StringIO()
        task = make_task(tmp_path, "lora", machine=machine, gpus=2)
        ready = Ready(task, OutsideShare(machine, tmp_path), torch_adam=True)
        with foresight_of(ready, tmp_path, Lines(lines)) as foresight:
            return foresight, lines.getvalue()

    on_gpu, said = opened(h200(versions={"torch": "2.11.0", "deepspeed": "0.20.1"}))
    checked, silence = opened(h200())
    cpu = dataclasses.replace(h200().capabilities, device="cpu", fp16=False, liger=False)
    on_cpu, nothing = opened(h200(device="cpu", capabilities=cpu, versions={"deepspeed": "0.20.1"}))

    assert on_gpu is not None and checked is not None and on_cpu is None
    assert said.startswith("warning: prediction was checked with deepspeed 0.19.8, this is 0.20.1")
    assert silence == "" and nothing == ""
    # Host memory is shared by the processes, device memory is not.
    assert on_gpu.about.budgets == Budgets(24 * GIB, 50 * GIB)
    assert on_gpu.about.processes == 2
