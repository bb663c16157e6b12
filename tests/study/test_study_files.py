"""An exported study comes back exactly, and nothing of a file that is not whole does."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from autotune.errors import AutotuneError, EnvironmentProblem, UsageError
from autotune.study import Study, StudyInputs, list_studies
from autotune.study.document import Document, document_of, store
from autotune.study.measured_on import MeasuredOn
from autotune.study.study_file import read_lines, write_lines
from trials.wire import GpuState, Outcome, Phase, Point, TrialResult

GOOD = Point(micro_batch_size=4, lora_rank=16, zero_stage=2)
LARGE = Point(micro_batch_size=8, lora_rank=16, zero_bucket_elements=10**9)
ODD = Point(micro_batch_size=2, checkpoint_fraction=0.25, liger_kernel=True)


def result(outcome: Outcome = Outcome.OK, **fields: Any) -> TrialResult:
    fields.setdefault("tokens_per_second", 1000.0 if outcome == Outcome.OK else None)
    return TrialResult(trial_id="0", outcome=outcome, phase=Phase.LATER_STEP, **fields)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, inputs: StudyInputs) -> Study:
    """Three trials that are over, an abandoned one, one that runs, and a confirmation; stays as it is."""
    study = Study.open(f"sqlite:///{tmp_path_factory.mktemp('made') / 's.db'}", inputs)
    gpu = GpuState(name="NVIDIA H200", driver="570.1")
    study.finish(study.begin(GOOD, {"required_device_bytes": 5}), result(gpu=gpu, versions={"torch": "2"}))
    study.abandon(study.begin(LARGE))
    study.finish(study.begin(LARGE), result(Outcome.OOM, oom_short_bytes=2**28, message="größer"))
    study.finish(study.begin(ODD), result(Outcome.NAN, losses=(5.5, math.nan, math.inf, -math.inf)))
    study.begin(ODD.model_copy(update={"micro_batch_size": 3}))
    study.add_confirmation(GOOD, result(step_seconds=(0.1, 0.2)))
    study.set_note("command", "autotune run --storage postgresql://me:hunter2@host/db?sslpassword=hunter2")
    study.set_note("owner", {"host": "secret-host", "pid": 1, "started": 0.0})
    study.set_note("decided", {"number": 0, "trials": 3})
    return study


@pytest.fixture(scope="module")
def lines(made: Study) -> list[str]:
    """Its file's lines."""
    return lines_of(made)


@pytest.fixture
def study(made: Study, tmp_path: Path) -> Study:
    """A copy of it."""
    shutil.copy(made._url.removeprefix("sqlite:///"), tmp_path / "s.db")
    return Study.load(f"sqlite:///{tmp_path / 's.db'}", made.name)


def lines_of(study: Study) -> list[str]:
    return list(write_lines(document_of(study)))


def complaint(lines: list[str]) -> AutotuneError:
    with pytest.raises(AutotuneError) as caught:
        read_lines(lines, "f.jsonl")
    assert len(str(caught.value).splitlines()) == 2
    return caught.value


def test_a_study_comes_back_exactly_with_its_numbers(study: Study, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"

    assert store(read_lines(lines_of(study), "f"), url) is True

    came = Study.load(url, study.name)
    over = [record for record in study.records() if record.result is not None]
    # A NaN equals nothing: compared as text.
    assert repr(came.records()) == repr(tuple(over))
    assert [record.number for record in came.records()] == [0, 2, 3]
    assert repr(came.confirmations()) == repr(study.confirmations())
    assert came.inputs == study.inputs and came.note("decided") == {"number": 0, "trials": 3}
    assert came.machine() == MeasuredOn(gpu_name="NVIDIA H200", driver="570.1", versions={"torch": "2"})
    [old], [new] = list_studies(study._url), list_studies(url)
    assert (new.created_at, new.opened_at, new.trials) == (old.created_at, old.opened_at, old.trials)


def test_the_samplers_see_an_imported_study_as_they_saw_the_first(study: Study, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    store(document_of(study), url)

    def told(storage_url: str) -> list[Any]:
        trials = optuna.load_study(study_name=study.name, storage=storage_url).trials
        return [(t.state, t.values, t.params, t.user_attrs, t.constraints) for t in trials if t.params]

    before = [one for one in told(study._url) if one[0].is_finished() and one[3]["outcome"] != "abandoned"]
    assert told(url) == before and len(before) == 3


def test_every_line_is_plain_json_without_secrets_or_a_host(lines: list[str]) -> None:
    header, *rest = [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) for line in lines
    ]
    assert header["format"] == "autotune-study" and header["format_version"] == 2
    assert (header["trials"], header["confirmations"]) == (3, 1)
    assert header["machine"]["gpu_name"] == "NVIDIA H200" and header["inputs"]["seq_len"] == 128
    assert [line["kind"] for line in rest] == ["trial"] * 3 + ["confirmation"]
    assert rest[2]["result"]["losses"] == [5.5, "NaN", "Infinity", "-Infinity"]
    assert "hunter2" not in "".join(lines) and "secret-host" not in "".join(lines)


def test_an_export_is_the_same_each_time_and_after_a_journey(study: Study, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    store(document_of(study), url)
    assert lines_of(study) == lines_of(study) == lines_of(Study.load(url, study.name))


def test_a_file_that_was_cut_off_between_lines_is_told_with_its_last_line(lines: list[str]) -> None:
    error = complaint(lines[:3])
    assert "line 3" in error.message and "2 of 3 trials" in error.message
    error = complaint(lines[:-1])
    assert "line 4" in error.message and "0 of 1 confirmations" in error.message


def test_a_file_that_was_cut_off_inside_a_line_is_told_with_that_line(lines: list[str]) -> None:
    assert "line 3" in complaint([*lines[:2], lines[2][:70]]).message


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_changed_line_is_told_by_its_number(lines: list[str], number: int) -> None:
    values = json.loads(lines[number - 1])
    values["notes" if number == 1 else "number"] = {} if number == 1 else 17
    edited = [*lines[: number - 1], json.dumps(values) + "\n", *lines[number:]]
    assert f"f.jsonl, line {number}: it was changed" in complaint(edited).message


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        lambda lines: [*lines, lines[-1]],
    ],
    ids=["left out", "exchanged", "twice", "appended"],
)
def test_lines_that_were_moved_are_told(lines: list[str], edit: Callable[[list[str]], list[str]]) -> None:
    assert "line" in complaint(edit(lines)).message


@pytest.mark.parametrize(
    "text",
    ["", "\n", "hello\n", "[1]\n", "{}\n", '{"format": "other"}\n', '{"format": "autotune-study"}\n', "1\n"],
)
def test_other_files_are_refused_in_words(text: str) -> None:
    assert "f.jsonl" in complaint(text.splitlines(keepends=True)).message


def test_deep_nesting_is_no_traceback(lines: list[str]) -> None:
    complaint(["[" * 100_000])
    complaint([lines[0], "[" * 100_000 + "\n"])


def rewritten(lines: list[str], number: int, change: Callable[[dict[str, Any]], Any]) -> list[str]:
    """The lines with one changed and every digest made again, as another program would write them."""
    digest, out = "", []
    for position, line in enumerate(lines, start=1):
        values = json.loads(line)
        del values["digest"]
        if position == number:
            change(values)
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256((digest + text).encode()).hexdigest()[:16]
        out.append(json.dumps({**values, "digest": digest}) + "\n")
    return out


def test_the_digests_are_as_documented(lines: list[str]) -> None:
    again = rewritten(lines, 0, lambda values: None)
    assert [json.loads(line) for line in again] == [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("number", "change", "words", "kind"),
    [
        (1, lambda v: v.update(format_version=3), "newer version", EnvironmentProblem),
        (1, lambda v: v.update(format_version="2"), "version", EnvironmentProblem),
        (1, lambda v: v["inputs"].update(packing=True), "inputs.packing", EnvironmentProblem),
        (1, lambda v: v.pop("created_at"), "created_at", EnvironmentProblem),
        (
            2,
            lambda v: v["result"].update(tokens_per_joule=1.0),
            "result.tokens_per_joule",
            EnvironmentProblem,
        ),
        (2, lambda v: v["point"].update(tensor_parallel=2), "point.tensor_parallel", EnvironmentProblem),
        (2, lambda v: v["point"].update(zero_stage=7), "point.zero_stage", EnvironmentProblem),
        (2, lambda v: v.update(result=None), "no result", UsageError),
        (3, lambda v: v.update(number=0), "cannot follow", UsageError),
        (3, lambda v: v.update(number=10**9), "cannot follow", UsageError),
        (4, lambda v: v.update(kind="wish"), "wish", UsageError),
        (5, lambda v: v.pop("finished_at"), "finished_at", EnvironmentProblem),
        (5, lambda v: v.update(finished_at="2026-01-01T00:00:00"), "finished_at", EnvironmentProblem),
    ],
)
def test_what_a_line_may_not_hold_is_told_with_its_number(
    lines: list[str],
    number: int,
    change: Callable[[dict[str, Any]], Any],
    words: str,
    kind: type[AutotuneError],
) -> None:
    error = complaint(rewritten(lines, number, change))
    assert isinstance(error, kind)
    assert f"line {number}" in error.message and words in error.message


def test_the_same_study_again_is_no_work_and_another_is_never_overwritten(study: Study) -> None:
    document = document_of(study)
    assert store(document, study._url) is False
    study.finish(study.begin(GOOD.model_copy(update={"lora_rank": 32})), result())
    with pytest.raises(UsageError) as caught:
        store(document, study._url)
    assert "--as NAME" in caught.value.hint
    assert len(study.records()) == 5

    assert store(document, study._url, "other") is True
    assert store(document, study._url, "other") is False
    assert len(Study.load(study._url, "other").records()) == 3


def test_a_study_that_was_merely_opened_again_is_still_the_same(study: Study, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    document = document_of(study)
    store(document, url)
    Study.open(url, study.inputs).set_note("trials", 80)
    assert store(document, url) is False


def test_other_peoples_studies_are_never_touched(study: Study, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    theirs = optuna.create_study(storage=url, study_name="theirs")
    theirs.add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(UsageError):
        store(document_of(study), url, "theirs")
    assert len(optuna.load_study(study_name="theirs", storage=url).trials) == 1


class Full(Exception):
    pass


def half_import(document: Document, url: str, monkeypatch: pytest.MonkeyPatch, *, killed: bool) -> None:
    """Lets the third trial's writing fail; killed: without a chance to tidy up."""
    from optuna.storages import RDBStorage

    write, count = RDBStorage.create_new_trial, iter(range(9))

    def fail_at_third(self: RDBStorage, *args: Any) -> int:
        if next(count) == 2:
            raise Full
        return int(write(self, *args))

    with monkeypatch.context() as patched:
        patched.setattr(RDBStorage, "create_new_trial", fail_at_third)
        if killed:
            patched.setattr(optuna, "delete_study", lambda **_: None)
        with pytest.raises(Full):
            store(document, url)


def test_an_import_that_fails_in_the_middle_leaves_nothing(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    half_import(document_of(study), url, monkeypatch, killed=False)
    assert optuna.get_all_study_names(url) == []


@pytest.mark.parametrize("then", ["import", "tune"])
def test_what_a_killed_import_left_is_invisible_and_no_hindrance(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    document = document_of(study)
    half_import(document, url, monkeypatch, killed=True)
    assert list_studies(url) == () and optuna.get_all_study_names(url) == [study.name]
    with pytest.raises(UsageError):
        Study.load(url, study.name)
    with pytest.raises(EnvironmentProblem, match="bringing in"):
        store(document, url)  # this process lives, and began it

    mark = {"host": "gone", "pid": 1, "started": 0.0, "at": "2020-01-01T00:00:00+00:00"}
    optuna.load_study(study_name=study.name, storage=url).set_user_attr("autotune_importing", mark)
    if then == "import":
        assert store(document, url) is True
        assert len(Study.load(url, study.name).records()) == 3
        # Neither this machine's name nor its process stays.
        attrs = optuna.load_study(study_name=study.name, storage=url).user_attrs
        assert attrs["autotune_importing"] == "done"
        assert store(document, url) is False
    else:
        assert Study.open(url, study.inputs).records() == ()
