"""Which studies of a storage are learned from; real SQLite."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from reuse_samples import GIB, VERSIONS, inputs_of, point, profile, record, speed

from autotune.errors import AutotuneError, EnvironmentProblem, UsageError
from autotune.models import resolve_model
from autotune.reuse.survey import MOST_STUDIES, Survey, similar_studies
from autotune.study import Study, StudyInputs
from autotune.study.document import Document, document_of, store
from autotune.study.measured_on import MeasuredOn
from autotune.study.owner import this_process
from autotune.study.reading import StorageReader

FIXTURE = Path(__file__).parents[1] / "study" / "fixtures" / "schema_1.sqlite"
POINTS = (point(4), point(2, 0.5), point(1, 1.0), point(24))


def make(url: str, *, model: str = "qwen2.5-1.5b", ok: bool = True, trials: int = 2, **values: Any) -> str:
    """A study of some trials; its name."""
    inputs = inputs_of(model, **values)
    study = Study.open(url, inputs)
    study.set_note("model", resolve_model(model).model_dump(mode="json"))
    study.set_machine(MeasuredOn(gpu_name=inputs.gpu_name, host_cpus=8, versions=VERSIONS))
    for number, each in enumerate(POINTS[:trials]):
        result = record(number, each, speed(each) if ok else None).result
        assert result is not None
        study.finish(study.begin(each), result)
    return study.name


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A storage of studies of many kinds, by what is particular of each."""
    url = f"sqlite:///{tmp_path_factory.mktemp('survey') / 's.db'}"
    names = {
        "budget": make(url, budget_bytes=40 * GIB),
        "near": make(url, model="qwen2.5-0.5b"),
        "far": make(url, model="gpt2-xl"),
        "gpu": make(url, gpu_name="NVIDIA H100 80GB HBM3"),
        "cpu": make(url, device="cpu", gpu_name=None),
        "empty": make(url, seq_len=512, trials=0),
        "oom": make(url, seq_len=2048, ok=False),
        "no model": make(url, seq_len=256),
        "running": make(url, seq_len=128),
        "newer": make(url, seq_len=64),
        "newer trial": make(url, budget_bytes=25 * GIB),
    }
    Study.load(url, names["no model"]).set_note("model", {"name": "gone"})
    Study.load(url, names["running"]).set_note("owner", this_process())
    optuna.load_study(study_name=names["newer"], storage=url).set_user_attr("autotune_schema", 99)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute(
            "UPDATE trial_system_attributes SET value_json = replace(value_json, '\"losses\"', '\"gains\"') "
            "WHERE key = 'autotune:result' AND trial_id IN (SELECT trial_id FROM trials JOIN studies USING "
            "(study_id) WHERE study_name = ?)",
            (names["newer trial"],),
        )
        connection.commit()
    return url, names


def survey(stored: tuple[str, dict[str, str]], wanted: Any = "own", own: str = "own") -> Survey:
    return similar_studies(stored[0], profile(cpus=8), own, wanted)


def test_the_most_similar_finished_studies_are_used_and_the_others_named(
    stored: tuple[str, dict[str, str]],
) -> None:
    names = stored[1]
    found = survey(stored)
    assert [one.study for one in found.similar] == [names[kind] for kind in ("budget", "gpu", "near", "far")]
    trusts = [one.trust for one in found.similar]
    assert trusts == sorted(trusts, reverse=True) and trusts[0] < 1
    assert all(len(one.records) == 2 for one in found.similar)
    kinds = {kind: found.passed_over.get(name, "") for kind, name in names.items()}
    assert "no trials" in kinds["empty"] and "none of its trials" in kinds["oom"]
    assert "model" in kinds["no model"] and "tuning it" in kinds["running"]
    assert "newer version" in kinds["newer trial"]


def test_the_study_itself_teaches_nothing(stored: tuple[str, dict[str, str]]) -> None:
    own = stored[1]["budget"]
    assert own not in [one.study for one in survey(stored, own=own).similar]


def test_off_looks_at_nothing() -> None:
    assert similar_studies("not even a URL", profile(), "own", "off") == Survey()


def test_named_studies_are_used_even_while_they_run(stored: tuple[str, dict[str, str]]) -> None:
    names = stored[1]
    found = survey(stored, (names["far"], names["running"], names["far"]))
    assert {one.study for one in found.similar} == {names["far"], names["running"]}


def test_a_named_study_of_which_nothing_holds_is_told(stored: tuple[str, dict[str, str]]) -> None:
    names = stored[1]
    found = survey(stored, (names["cpu"], names["empty"]))
    assert found.similar == ()
    assert "CPU" in found.passed_over[names["cpu"]] and names["empty"] in found.passed_over


@pytest.mark.parametrize("kind", ["newer", "newer trial"])
def test_a_named_study_that_cannot_be_read_is_an_error(stored: tuple[str, dict[str, str]], kind: str) -> None:
    with pytest.raises(EnvironmentProblem, match="newer version"):
        survey(stored, (stored[1][kind],))


def test_a_name_that_is_not_there_is_an_error_with_the_nearest(stored: tuple[str, dict[str, str]]) -> None:
    name = stored[1]["near"]
    with pytest.raises(UsageError) as caught:
        survey(stored, (name[:-1],))
    assert name in caught.value.hint
    with pytest.raises(UsageError, match="itself"):
        survey(stored, (name,), own=name)


def test_a_storage_that_is_not_there_has_no_studies(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    assert similar_studies(url, profile(), "own", "own").similar == ()
    assert not list(tmp_path.iterdir())
    with pytest.raises(AutotuneError):
        similar_studies(url, profile(), "own", ("x",))


def test_a_reader_sees_what_the_study_holds(stored: tuple[str, dict[str, str]]) -> None:
    reader = StorageReader(stored[0])
    for kind in ("budget", "oom", "empty"):
        name = stored[1][kind]
        study = Study.load(stored[0], name)
        assert reader.heads[name] == study.head()
        assert reader.records(name) == study.records()


def test_a_study_of_the_first_version_teaches_too(tmp_path: Path) -> None:
    shutil.copy(FIXTURE, tmp_path / "s.db")
    url = f"sqlite:///{tmp_path / 's.db'}"
    [name] = StorageReader(url).heads
    study = Study.load(url, name)
    other = study.inputs.model_copy(update={"budget_bytes": 500 * 2**20})
    target = profile_on_cpu(other)
    [one] = similar_studies(url, target, "own", "own").similar
    assert one.study == name and len(one.records) == 9 and one.trust > 0.8


def profile_on_cpu(inputs: StudyInputs) -> Any:
    from autotune.reuse import profile_of

    return profile_of(inputs, resolve_model(inputs.model), MeasuredOn(host_cpus=2, versions={}))


def test_five_hundred_studies_are_looked_through_in_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    shutil.copy(FIXTURE, path)
    url = f"sqlite:///{path}"
    [name] = StorageReader(url).heads
    multiply(path, document_of(Study.load(url, name)), 500)
    inputs = Study.load(url, name).inputs.model_copy(update={"seq_len": 256})
    target = profile_on_cpu(inputs)

    seconds = []
    for _ in range(3):
        began = time.process_time()
        found = similar_studies(url, target, "own", "own")
        seconds.append(time.process_time() - began)

    assert found.looked_at == 500 and len(found.similar) == MOST_STUDIES
    assert min(seconds) < 0.3


def multiply(path: Path, document: Document, count: int) -> None:
    """Copies the file's only study until there are so many, by SQL: through Optuna it would take minutes."""
    tables = {
        "study_directions": "study_id",
        "study_user_attributes": "study_id",
        "study_system_attributes": "study_id",
        "trial_params": "trial_id",
        "trial_values": "trial_id",
        "trial_user_attributes": "trial_id",
        "trial_system_attributes": "trial_id",
    }
    assert store(document, f"sqlite:///{path}") is False
    with closing(sqlite3.connect(path)) as connection:

        def columns(table: str) -> list[str]:
            return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]

        for copy in range(1, count):
            connection.execute(f"INSERT INTO studies (study_id, study_name) VALUES (1 + {copy}, 's{copy}')")
            rest = ", ".join(name for name in columns("trials") if name not in ("trial_id", "study_id"))
            connection.execute(
                f"INSERT INTO trials (trial_id, study_id, {rest}) "
                f"SELECT trial_id + {100 * copy}, 1 + {copy}, {rest} FROM trials WHERE study_id = 1"
            )
            for table, owner in tables.items():
                step = 100 * copy if owner == "trial_id" else copy
                limit = 100 if owner == "trial_id" else 1
                rest = ", ".join(columns(table)[1:])
                values = rest.replace(owner, f"{owner} + {step}")
                connection.execute(
                    f"INSERT INTO {table} ({rest}) SELECT {values} FROM {table} WHERE {owner} <= {limit}"
                )
        connection.commit()
