"""Studies of an older autotune still open; those of a newer one are refused in words.

fixtures/schema_1.sqlite was made by autotune 0.1.0 when the form had its first version: nine real trials of
tiny-llama on a CPU under 250 MiB and a confirmation, `autotune run` stopped by Ctrl-C after the third trial
and begun again. fixtures/schema_1_run.json is what that program printed at the end.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest

from autotune.errors import AutotuneError, EnvironmentProblem
from autotune.study import Study, StudyInputs, contents_of, list_studies
from autotune.study.document import document_of, store
from autotune.study.migrations import SCHEMA_VERSION, Step, upgraded
from autotune.study.study_file import read_lines, write_lines
from autotune.tuning.findings import findings_json, findings_of
from trials.wire import Outcome, Phase, Point, TrialResult

FIXTURES = Path(__file__).parent / "fixtures"
PRINTED: dict[str, Any] = json.loads((FIXTURES / "schema_1_run.json").read_text())
NAME: str = PRINTED["study"]
UNTRIED = Point(micro_batch_size=2, gradient_accumulation_steps=4, lora_rank=16)


@pytest.fixture
def old_url(tmp_path: Path) -> str:
    shutil.copy(FIXTURES / "schema_1.sqlite", tmp_path / "old.db")
    return f"sqlite:///{tmp_path / 'old.db'}"


def attribute(url: str, name: str, key: str, value: Any) -> None:
    """Changes an attribute of a study behind autotune's back."""
    optuna.load_study(study_name=name, storage=url).set_user_attr(key, value)


def change_results(url: str, old: str, new: str) -> None:
    """Changes the text of all stored results."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        changed = connection.execute(
            "UPDATE trial_system_attributes SET value_json = replace(value_json, ?, ?) "
            "WHERE key = 'autotune:result'",
            (old, new),
        )
        assert changed.rowcount > 0
        connection.commit()


def test_a_study_of_the_first_version_has_the_findings_it_had(old_url: str) -> None:
    before = Path(old_url.removeprefix("sqlite:///")).read_bytes()
    study = Study.load(old_url, NAME)

    found = findings_json(findings_of(study))

    told = json.loads(json.dumps(found))
    for key in ("study", "trials", "skipped", "budget_bytes", "price_list"):
        assert told[key] == PRINTED[key]
    # That program counted the interrupted trial among the others' numbers.
    old, new = ({**said["winner"], "trial": None} for said in (PRINTED, told))
    assert old.items() <= new.items()
    assert [record.number for record in study.records()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    machine = study.machine()
    assert machine is not None and machine.versions["deepspeed"] == "0.19.8" and machine.gpu_name is None
    [summary] = list_studies(old_url)
    assert sum(summary.trials.values()) == 9 and summary.trials[Outcome.OOM] == 3
    # To read is not to write.
    assert Path(old_url.removeprefix("sqlite:///")).read_bytes() == before


def test_a_study_of_the_first_version_is_found_by_its_inputs_and_goes_on(old_url: str) -> None:
    inputs = Study.load(old_url, NAME).inputs
    assert inputs.study_name() == NAME

    study = Study.open(old_url, inputs)
    result = TrialResult(trial_id="10", outcome=Outcome.OK, phase=Phase.LATER_STEP, tokens_per_second=9999.0)
    study.finish(study.begin(UNTRIED), result)

    again = Study.load(old_url, NAME)
    assert [record.number for record in again.records()] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert again.records()[-1].result == result
    assert len(again.confirmations()) == 1
    stored = optuna.load_study(study_name=NAME, storage=old_url)
    assert stored.user_attrs["autotune_schema"] == SCHEMA_VERSION == 2
    assert stored.user_attrs["machine"] is None


def test_a_study_of_the_first_version_travels(old_url: str, tmp_path: Path) -> None:
    text = "".join(write_lines(document_of(Study.load(old_url, NAME))))
    url = f"sqlite:///{tmp_path / 'new.db'}"

    assert store(read_lines(text.splitlines(keepends=True), "old.jsonl"), url)

    old, new = Study.load(old_url, NAME), Study.load(url, NAME)
    assert new.records() == old.records() and new.confirmations() == old.confirmations()
    assert findings_json(findings_of(new)) == findings_json(findings_of(old))


def test_values_climb_one_version_at_a_time() -> None:
    steps = {
        1: Step(trial=lambda trial: {**trial, "speed": trial["tokens"] / trial["seconds"]}),
        2: Step(head=lambda head: {**head, "machine": None}),
        3: Step(trial=lambda trial: {key: trial[key] for key in trial if key != "tokens"}),
    }
    old = {"tokens": 10, "seconds": 4}

    def climbed(version: int) -> dict[str, Any]:
        return upgraded("trial", old, version, "it", steps=steps, newest=4)

    assert climbed(1) == {"seconds": 4, "speed": 2.5}
    assert climbed(2) == climbed(3) == {"seconds": 4}
    assert climbed(4) == old == {"tokens": 10, "seconds": 4}
    assert upgraded("head", {}, 1, "it", steps=steps, newest=4) == {"machine": None}


@pytest.mark.parametrize("version", [0, -1, None, "1", 1.0, True])
def test_a_version_that_is_none_is_told(version: object) -> None:
    with pytest.raises(EnvironmentProblem, match="damaged"):
        upgraded("head", {}, version, "it")


def test_a_result_with_a_field_of_a_newer_program_is_refused_in_words(old_url: str) -> None:
    change_results(old_url, '"outcome": ', '"tokens_per_joule": 3.5, "outcome": ')
    study = Study.load(old_url, NAME)
    with pytest.raises(EnvironmentProblem, match=r"trial 1 of the study .* newer version .*tokens_per_joule"):
        study.records()
    contents = contents_of(old_url)
    assert contents.summaries == () and list(contents.unreadable) == [NAME]


def test_a_damaged_result_is_refused_in_words(old_url: str) -> None:
    change_results(old_url, '"phase": ', '"stage": ')
    with pytest.raises(EnvironmentProblem):
        Study.load(old_url, NAME).records()
    change_results(old_url, '"stage": ', '"phase": 7, "x": ')
    with pytest.raises(EnvironmentProblem):
        Study.load(old_url, NAME).records()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("autotune_schema", 3),
        ("autotune_schema", "two"),
        ("inputs", {"model": "m"}),
        ("inputs", None),
        ("created_at", "yesterday"),
        ("opened_at", None),
        ("autotune_version", 7),
    ],
)
def test_one_unreadable_study_does_not_hide_the_others(old_url: str, key: str, value: Any) -> None:
    old = Study.load(old_url, NAME)
    other = Study.open(old_url, old.inputs.model_copy(update={"seq_len": 64}))
    attribute(old_url, NAME, key, value)

    contents = contents_of(old_url)

    assert [summary.name for summary in contents.summaries] == [other.name]
    assert list(contents.unreadable) == [NAME]
    with pytest.raises(AutotuneError, match=NAME):
        Study.load(old_url, NAME)


def test_an_input_that_came_later_changes_no_name_while_it_is_at_its_default() -> None:
    class LaterInputs(StudyInputs):
        packing: bool = False

    values = PRINTED_INPUTS
    assert StudyInputs(**values).study_name() == NAME
    assert LaterInputs(**values).study_name() == NAME
    assert LaterInputs(**values, packing=True).study_name() != NAME


PRINTED_INPUTS: dict[str, Any] = {
    "model": "tiny-llama",
    "model_digest": "11152ff08aa096c9",
    "method": "any",
    "seq_len": 128,
    "global_batch": 8,
    "budget_bytes": 250 * 2**20,
    "device": "cpu",
    "space_name": "quick",
    "space_digest": "2328ede480d216ca",
}
