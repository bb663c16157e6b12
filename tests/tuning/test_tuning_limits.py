"""Where nothing fits, the budget that is in the way is named: the device's or the host's."""

from __future__ import annotations

from pathlib import Path

import pytest
from prediction_samples import GIB, make_foresight, prediction
from session_samples import make_session, make_task
from tuning_samples import MIB, add, empty_study, trial_result

from autotune.display.results import findings_text, shortfall_words
from autotune.errors import EnvironmentProblem
from autotune.prediction import Predictor
from autotune.tuning.findings import RunResult, findings_of
from autotune.tuning.limits import broken_limits
from autotune.tuning.search import search
from autotune.tuning.shortfall import Shortfall, known_shortfall, predict_shortfall
from autotune.tuning.smallest import smallest_host_point
from autotune.tuning.tune import _require_memory_failures
from trials.wire import Outcome, Phase, Point

PHASES = ("load", "start", "first_step", "later_step")
OOM, HOST_OOM, INVALID = (
    trial_result(outcome=Outcome(name), phase=Phase.LOAD, message=f"an {name}")
    for name in ("oom", "host_oom", "invalid")
)


def test_which_budgets_are_broken_follows_from_the_outcomes() -> None:
    assert broken_limits([INVALID, trial_result(100.0)], GIB) == ()
    assert broken_limits([OOM], GIB) == ("device",)
    assert broken_limits([HOST_OOM, INVALID], GIB) == ("host",)
    assert broken_limits([HOST_OOM, OOM], GIB) == ("device", "host")
    assert broken_limits([trial_result(100.0, required_device_bytes=2 * GIB)], GIB) == ("device",)


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ((OOM, OOM), "no lora configuration fits 1.0 GiB: trying qlora"),
        ((HOST_OOM, HOST_OOM), "no lora configuration fits the host budget of 100.0 GiB: trying qlora"),
        (
            (OOM, HOST_OOM),
            "no lora configuration fits 1.0 GiB and the host budget of 100.0 GiB: trying qlora",
        ),
        ((INVALID, INVALID), "no lora configuration succeeded (2 invalid): trying qlora"),
        ((OOM, INVALID), "no lora configuration succeeded in 1.0 GiB (1 oom, 1 invalid): trying qlora"),
    ],
)
def test_why_the_next_method_is_tried_names_what_was_in_the_way(
    tmp_path: Path, results: tuple[object, object], words: str
) -> None:
    task = make_task(tmp_path, "lora", "qlora", budget_bytes=GIB)
    session, lines = make_session(tmp_path, task, None)
    for stage in task.stages:
        for point, result in zip(stage.points, results, strict=True):
            add(session.study, point, result)  # type: ignore[arg-type]
    search(session)
    assert [line for line in lines.getvalue().splitlines() if "trying" in line] == [words]


def test_no_method_is_said_to_be_tried_when_the_trials_are_used_up(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lora", "qlora", trials=1)
    session, lines = make_session(tmp_path, task, None)
    add(session.study, task.stages[0].points[0], INVALID)
    search(session)
    assert "trying" not in lines.getvalue()
    with pytest.raises(EnvironmentProblem, match=r"none was about memory \(invalid\): an invalid"):
        _require_memory_failures(session.study)


@pytest.mark.parametrize(
    ("limits", "message", "hint"),
    [
        (("device",), "nothing fits 1.0 GiB;", "needs 1.5 GiB:"),
        (("host",), "nothing fits the host budget of 1 MiB;", "needs 547 MiB of host memory:"),
        (
            ("device", "host"),
            "nothing fits 1.0 GiB and the host budget of 1 MiB;",
            "needs 1.5 GiB and 547 MiB of host memory:",
        ),
    ],
)
def test_what_the_smallest_needs_is_told_of_the_budget_in_the_way(
    tmp_path: Path, limits: tuple[object, ...], message: str, hint: str
) -> None:
    study = empty_study(tmp_path)
    needed = trial_result(1.0, required_device_bytes=1536 * MIB, host_peak_bytes=547 * MIB)
    found = Shortfall(Point(lora_rank=16), needed, limits, MIB)  # type: ignore[arg-type]
    result = RunResult(findings_of(study), 1.0, None, found, interrupted=False)
    said = shortfall_words(result)
    assert said[0].startswith(message) and hint in said[1]
    assert result.as_json()["limit"] == limits[0]
    assert result.as_json()["smallest_needed_host_bytes"] == 547 * MIB


def test_what_an_older_version_kept_of_the_smallest_is_still_read(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    result = trial_result(1.0)
    study.set_note("shortfall", {"point": Point().model_dump(), "result": result.model_dump(mode="json")})
    found = known_shortfall(study)
    assert isinstance(found, Shortfall)
    assert (found.limits, found.host_budget_bytes) == (("device",), None)


def test_a_predicted_shortage_of_host_memory_is_called_that(tmp_path: Path, predictor: Predictor) -> None:
    # The last method there is: no other one is looked at.
    task = make_task(tmp_path, "qlora", budget_bytes=8 * GIB)
    foresight = make_foresight(
        tmp_path, budget_bytes=8 * GIB, host_bytes=GIB, model=task.model, predictor=predictor
    )
    for point in task.stages[0].points:
        foresight.know(point, prediction(dict.fromkeys(PHASES, GIB), host_bytes=3 * GIB))
    session, _ = make_session(tmp_path, task, foresight)
    search(session)
    found = predict_shortfall(session)
    assert found is not None and found.limits == ("host",)
    assert known_shortfall(session.study) == found
    result = RunResult(findings_of(session.study), 1.0, None, found, interrupted=False)
    message, hint = shortfall_words(result)
    assert message.startswith("nothing fits the host budget of ") and "of host memory" not in message
    assert "needs 3.0 GiB of 1.0 GiB host memory" in hint


def test_the_least_host_memory_is_that_without_offload() -> None:
    offloaded = Point(zero_stage=3, offload="optimizer+parameters", checkpoint_fraction=1.0)
    assert smallest_host_point([offloaded, Point(zero_stage=1)], "cuda") == Point(zero_stage=1)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.OOM, "no configuration fits 1.0 GiB so far"),
        (Outcome.HOST_OOM, "no configuration fits the host budget so far"),
        (Outcome.INVALID, "no configuration has succeeded in 1.0 GiB so far"),
    ],
)
def test_a_study_without_a_winner_speaks_of_memory_only_where_it_was_memory(
    tmp_path: Path, outcome: Outcome, words: str
) -> None:
    study = empty_study(tmp_path)
    add(study, Point(), trial_result(outcome=outcome))
    assert words in findings_text(findings_of(study))
