"""Trials are kept exactly, in a form that people and samplers can read."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotune.errors import UsageError
from autotune.study import PointTaken, Study, StudyInputs, latest_study, list_studies
from trials.wire import GpuState, Outcome, Phase, Point, TrialResult

POINT = Point(
    micro_batch_size=4, lora_rank=16, zero_stage=3, offload="optimizer+parameters", liger_kernel=True
)


def result(outcome: Outcome = Outcome.OK, **fields: Any) -> TrialResult:
    fields.setdefault("tokens_per_second", 1000.0 if outcome == Outcome.OK else None)
    return TrialResult(trial_id="0", outcome=outcome, phase=Phase.LATER_STEP, **fields)


def optuna_trials(storage_url: str, name: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=storage_url).trials


def test_a_record_comes_back_exactly_as_it_went_in(storage_url: str, inputs: StudyInputs) -> None:
    full = result(
        step_seconds=(0.1, 0.2),
        losses=(5.5, math.inf),
        phase_peak_allocated_bytes={"load": 3},
        ds_config={"zero_optimization": {"stage": 3}},
        versions={"torch": "2.13.0"},
        lora_targets=("q_proj",),
        gpu=GpuState(name="H200", power_watts=400.0),
        peak_allocated_bytes=2**40,
    )
    before = datetime.now(UTC)
    study = Study.open(storage_url, inputs)
    number = study.begin(POINT, {"peak_allocated_bytes": 123, "phase": "backward"})
    study.finish(number, full)
    for reader in (study, Study.load(storage_url, study.name)):
        (record,) = reader.records()
        assert record.number == number and record.point == POINT and record.result == full
        assert record.predicted == {"peak_allocated_bytes": 123, "phase": "backward"}
        assert record.finished_at is not None
        assert before <= record.started_at <= record.finished_at <= datetime.now(UTC)


def test_losses_that_are_not_numbers_are_kept(storage_url: str, inputs: StudyInputs) -> None:
    study = Study.open(storage_url, inputs)
    study.finish(study.begin(POINT), result(Outcome.NAN, losses=(5.5, math.nan)))
    (record,) = Study.load(storage_url, study.name).records()
    assert record.result and record.result.losses[0] == 5.5 and math.isnan(record.result.losses[1])


def test_a_dashboard_shows_names_and_values_that_people_understand(
    storage_url: str, inputs: StudyInputs
) -> None:
    study = Study.open(storage_url, inputs)
    measured = {"required_device_bytes": 3 * 2**29, "device_bytes": 2**31, "tokens_per_second_low": 990.04}
    study.finish(study.begin(POINT, {"required_device_bytes": 2**30}), result(**measured))
    study.finish(study.begin(POINT.model_copy(update={"zero_bucket_elements": 10**9})), result(Outcome.OOM))
    first, second = optuna_trials(storage_url, study.name)
    assert first.params == {
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "precision": "bf16",
        "checkpoint_fraction": 0.0,
        "zero_stage": 3,
        "offload": "optimizer+parameters",
        "lora_rank": 16,
        "quantization": "none",
        "optimizer": "adamw",
        "attention": "sdpa",
        "liger_kernel": True,
    }
    assert first.user_attrs == {
        "zero_bucket_elements": "default",
        "method": "lora",
        "predicted GiB": 1.0,
        "outcome": "ok",
        "ended in": "later step",
        "required GiB": 1.5,
        "held GiB": 2.0,
        "tokens per second, 95% low": 990.0,
    }
    assert second.params["zero_bucket_elements"] == 10**9
    shown = optuna.load_study(study_name=study.name, storage=storage_url).user_attrs
    assert (shown["model"], shown["budget GiB"], shown["measured on"]) == ("tiny-llama", 1.0, "cpu")


def test_optuna_is_told_the_state_the_value_and_the_constraints(
    storage_url: str, inputs: StudyInputs
) -> None:
    study = Study.open(storage_url, inputs)
    for size, outcome in enumerate(Outcome, start=1):
        point = POINT.model_copy(update={"micro_batch_size": size})
        study.finish(study.begin(point), result(outcome, oom_short_bytes=2**29))
    told = {trial.user_attrs["outcome"]: trial for trial in optuna_trials(storage_url, study.name)}
    assert told["ok"].state == TrialState.COMPLETE and told["ok"].value == 1000.0
    assert told["oom"].state == TrialState.PRUNED and told["oom"].constraints["device_memory"] == 0.5
    assert told["host_oom"].state == TrialState.PRUNED and told["host_oom"].constraints["host_memory"] == 0.5
    assert told["timeout"].state == TrialState.PRUNED
    assert {told[name].state for name in ("crash", "nan", "invalid")} == {TrialState.FAIL}
    optuna_study = optuna.load_study(study_name=study.name, storage=storage_url)
    assert optuna_study.best_value == 1000.0 and optuna_study.metric_names == ["tokens per second"]


def test_only_real_trials_are_in_the_study(storage_url: str, inputs: StudyInputs) -> None:
    study = Study.open(storage_url, inputs)
    study.finish(study.begin(POINT), result())
    study.add_confirmation(POINT, result())
    study.set_note("skipped", 7)
    assert len(optuna_trials(storage_url, study.name)) == 1


def test_a_trial_that_runs_is_pending_and_an_abandoned_one_is_gone(
    storage_url: str, inputs: StudyInputs
) -> None:
    study = Study.open(storage_url, inputs)
    number = study.begin(POINT)
    for reader in (study, Study.load(storage_url, study.name)):
        (record,) = reader.records()
        assert record.point == POINT and record.result is None and record.finished_at is None
    study.abandon(number)
    assert study.records() == ()
    assert optuna_trials(storage_url, study.name)[0].state == TrialState.FAIL
    again = study.begin(POINT)
    study.finish(again, result())
    study.abandon(again)
    assert [record.number for record in study.records()] == [again]


def test_a_point_that_a_live_process_tries_cannot_be_begun_twice(
    storage_url: str, inputs: StudyInputs
) -> None:
    study, other = Study.open(storage_url, inputs), Study.open(storage_url, inputs)
    number = study.begin(POINT)
    with pytest.raises(PointTaken):
        other.begin(POINT)
    assert [record.number for record in other.records()] == [number]
    other.finish(other.begin(POINT.model_copy(update={"lora_rank": 32})), result())
    study.finish(number, result())
    assert len(study.records()) == 2
    study.finish(study.begin(POINT), result())  # over, so it may be measured again on purpose


def test_the_same_inputs_resume_and_others_are_refused(storage_url: str, inputs: StudyInputs) -> None:
    study = Study.open(storage_url, inputs)
    study.finish(study.begin(POINT), result())
    assert len(Study.open(storage_url, inputs).records()) == 1
    other = inputs.model_copy(update={"seq_len": 256})
    assert Study.open(storage_url, other).records() == ()
    with pytest.raises(UsageError, match="about another seq_len: 128, not 256"):
        Study.open(storage_url, other, name=study.name)
    named = Study.open(storage_url, inputs, name="night run/1")
    assert named.records() == () and named.name == "night run/1"
    for bad in ("", "  ", "x" * 300):
        with pytest.raises(UsageError, match="1 to 255 characters"):
            Study.open(storage_url, inputs, name=bad)


def test_an_unknown_study_is_told_with_close_names(storage_url: str, inputs: StudyInputs) -> None:
    with pytest.raises(UsageError, match="there is no study 'tiny'"):
        Study.load(storage_url, "tiny")
    name = Study.open(storage_url, inputs).name
    with pytest.raises(UsageError, match=f"did you mean {name}"):
        Study.load(storage_url, name[:-2])
    for number in range(4):
        Study.open(storage_url, inputs, name=f"night {number}")
    with pytest.raises(UsageError, match="studies: night 1, night 2, night 3 and 2 more"):
        Study.load(storage_url, "zzzz")
    assert Study.load(storage_url, name).inputs == inputs


def test_confirmations_are_kept_apart_and_in_order(storage_url: str, inputs: StudyInputs) -> None:
    study, other = Study.open(storage_url, inputs), Study.open(storage_url, inputs)
    study.add_confirmation(POINT, result(Outcome.OOM))
    other.add_confirmation(POINT, result(tokens_per_second=7.0))
    assert [c.result.outcome for c in study.confirmations() if c.result] == [Outcome.OOM, Outcome.OK]
    assert [c.number for c in study.confirmations()] == [0, 1]
    assert study.records() == ()


def test_notes_hold_json(storage_url: str, inputs: StudyInputs) -> None:
    study = Study.open(storage_url, inputs)
    assert study.note("model") is None
    study.set_note("model", {"config": [1, None, "ü"]})
    study.set_note("model", {"config": [2, None, "ü"]})
    assert Study.load(storage_url, study.name).note("model") == {"config": [2, None, "ü"]}


def test_studies_are_listed_the_last_tuned_last(storage_url: str, inputs: StudyInputs) -> None:
    assert list_studies(storage_url) == () and latest_study(storage_url) is None
    first = Study.open(storage_url, inputs)
    for size, outcome in enumerate((Outcome.OK, Outcome.STOPPED, Outcome.OOM, Outcome.OOM), start=1):
        point = POINT.model_copy(update={"micro_batch_size": size})
        first.finish(first.begin(point), result(outcome, tokens_per_second=1000.0 * size))
    first.begin(POINT)
    optuna.create_study(storage=storage_url, study_name="somebody else's")
    second = Study.open(storage_url, inputs, name="second")
    assert [summary.name for summary in list_studies(storage_url)] == [first.name, "second"]
    assert latest_study(storage_url) == "second"
    Study.load(storage_url, first.name)
    assert latest_study(storage_url) == "second"
    Study.open(storage_url, inputs)
    assert latest_study(storage_url) == first.name
    summary = list_studies(storage_url)[-1]
    assert summary.trials == {Outcome.OK: 1, Outcome.STOPPED: 1, Outcome.OOM: 2}
    assert summary.best_tokens_per_second == 1000.0  # one that was stopped early is not the best
    assert summary.running == 1 and summary.inputs == inputs
    second.delete()
    assert [summary.name for summary in list_studies(storage_url)] == [first.name]


def test_another_optuna_study_of_the_name_is_left_alone(storage_url: str, inputs: StudyInputs) -> None:
    theirs = optuna.create_study(storage=storage_url, study_name="theirs")
    theirs.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(UsageError, match="was not made by autotune"):
        Study.open(storage_url, inputs, name="theirs")
    with pytest.raises(UsageError, match="there is no study 'theirs'"):
        Study.load(storage_url, "theirs")


def test_trials_that_others_add_are_passed_over(storage_url: str, inputs: StudyInputs) -> None:
    study = Study.open(storage_url, inputs)
    optuna.load_study(study_name=study.name, storage=storage_url).enqueue_trial({"micro_batch_size": 3})
    assert Study.open(storage_url, inputs).records() == ()
