"""What the commands that look at studies say of one whose trials are known."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from cli_process import InProcess
from study_samples import GOOD, LARGE, MIB, SLOW, add, make_study, result_of

from autotune.study import Study
from autotune.tuning.folders import study_folders
from autotune.tuning.ownership import take
from trials.wire import Outcome

STORAGE = ("--storage", "sqlite:///s.db")
NO_TRIALS = {"ok", "stopped", "oom", "host_oom", "timeout", "crash", "nan", "invalid"}


def test_best_gives_the_confirmed_winner_and_the_price_of_each_rank(
    in_process: InProcess, filled: Study
) -> None:

    done = in_process("best", *STORAGE, "--study", filled.name, "--json")

    best = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == ""
    assert best["study"] == filled.name
    assert best["winner"]["point"] == GOOD.model_dump(mode="json")
    # The confirmation's figures are what is announced.
    assert best["winner"]["tokens_per_second"] == 1950.0
    assert best["winner"]["required_device_bytes"] == 210 * MIB
    assert best["winner"]["confirmed"] is True
    assert best["trials"] == dict.fromkeys(NO_TRIALS, 0) | {"ok": 2, "oom": 1}
    assert best["skipped"] == 0
    ranks = {price["value"]: price["tokens_per_second"] for price in best["price_list"]}
    assert ranks == {16: 1950.0, 32: 1000.0}


def test_best_in_words_names_point_speed_and_memory(in_process: InProcess, filled: Study) -> None:

    text = in_process("best", *STORAGE).stdout

    assert "mb 4 x ga 2, zero 0, ckpt 0, lora 16" in text
    assert "1,950 tok/s" in text
    assert "210 MiB of 1" in text
    assert "3: 2 ok, 1 oom" in text


def test_without_a_name_the_last_tuned_study_is_meant(
    in_process: InProcess, filled: Study, tmp_path: Path
) -> None:
    second = make_study(f"sqlite:///{tmp_path / 's.db'}", seq_len=256)
    add(second, SLOW, result_of(SLOW))

    assert json.loads(in_process("best", *STORAGE, "--json").stdout)["study"] == second.name
    assert json.loads(in_process("status", *STORAGE, "--json").stdout)["study"] == second.name


def test_best_of_a_study_in_which_nothing_fits_exits_with_1_and_still_prints_json(
    in_process: InProcess, tmp_path: Path
) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}")
    add(study, LARGE, result_of(LARGE, Outcome.OOM))

    done = in_process("best", *STORAGE, "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout)["winner"] is None
    assert len(done.stderr.splitlines()) <= 2


def test_status_tells_whether_a_live_process_tunes_it(in_process: InProcess, filled: Study) -> None:
    before = json.loads(in_process("status", *STORAGE, "--json").stdout)
    take(filled)
    meanwhile = json.loads(in_process("status", *STORAGE, "--json").stdout)

    assert before["running"] is False
    assert meanwhile["running"] is True
    assert meanwhile["trials_asked"] == 12
    assert meanwhile["trials"]["ok"] == 2
    assert "running" in in_process("status", *STORAGE).stdout


def test_list_has_each_study_with_its_best(in_process: InProcess, filled: Study) -> None:

    listed = json.loads(in_process("list", *STORAGE, "--json").stdout)

    assert [one["study"] for one in listed] == [filled.name]
    # The trial had 2,000; its confirmation, which is what `best` announces, 1,950.
    assert listed[0]["best_tokens_per_second"] == 1950.0
    best = json.loads(in_process("best", *STORAGE, "--json").stdout)
    assert best["winner"]["tokens_per_second"] == 1950.0
    assert listed[0]["trials"]["oom"] == 1
    assert filled.name in in_process("list", *STORAGE).stdout


def test_list_of_no_storage_is_empty_and_creates_none(in_process: InProcess, tmp_path: Path) -> None:
    done = in_process("list", *STORAGE, "--json")

    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert list(tmp_path.iterdir()) == []


def test_show_numbers_trials_from_one_and_says_why_one_failed(in_process: InProcess, filled: Study) -> None:

    whole = json.loads(in_process("show", filled.name, *STORAGE, "--json").stdout)
    third = json.loads(in_process("show", filled.name, "3", *STORAGE, "--json").stdout)
    text = in_process("show", filled.name, "3", *STORAGE).stdout

    assert [trial["number"] for trial in whole["trials"]] == [1, 2, 3]
    assert whole["inputs"]["budget_bytes"] == 2**30
    assert third["point"] == LARGE.model_dump(mode="json")
    assert third["result"]["outcome"] == "oom"
    assert "out of memory" in text
    assert "30 MiB" in text
    assert "in backward, 30 MiB short" in in_process("show", filled.name, *STORAGE).stdout


@pytest.mark.parametrize("number", ["4", "0", "-1"])
def test_show_of_a_trial_that_is_not_there_is_a_mistake(
    number: str, in_process: InProcess, filled: Study
) -> None:

    done = in_process("show", filled.name, number, *STORAGE)

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) <= 2


def logs_of(study: Study, folder: Path) -> Path:
    """Where the logs of a study in STORAGE are, for commands that run in the folder."""
    url = STORAGE[1].replace("sqlite:///", f"sqlite:///{folder}/")
    return study_folders(folder / "data" / "autotune", study.name, url, None).logs


def test_a_trial_s_log_is_named_if_it_is_there(in_process: InProcess, filled: Study, tmp_path: Path) -> None:
    logs = logs_of(filled, tmp_path)
    logs.mkdir(parents=True)
    (logs / "trial-1.log").write_text("hello\n")

    first = json.loads(in_process("show", filled.name, "1", *STORAGE, "--json").stdout)
    second = json.loads(in_process("show", filled.name, "2", *STORAGE, "--json").stdout)

    assert first["log"] == str(logs / "trial-1.log")
    assert second["log"] is None


def test_export_writes_the_winner_s_folder_without_running_anything(
    in_process: InProcess, filled: Study, tmp_path: Path
) -> None:

    done = in_process("export", *STORAGE, "--export-dir", "mine", "--json")

    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert {name: answer[name] for name in ("study", "format", "export_dir", "file")} == {
        "study": filled.name,
        "format": "deepspeed",
        "export_dir": "mine",
        "file": "mine/ds_config.json",
    }
    assert answer["exports"][0]["lost"] == []
    config = json.loads((tmp_path / "mine" / "ds_config.json").read_text())
    assert config["train_micro_batch_size_per_gpu"] == 4
    record = json.loads((tmp_path / "mine" / "autotune.json").read_text())
    assert record["confirmed"] is True
    assert record["command"] == "autotune run --model tiny-llama"


def test_export_of_a_study_without_a_winner_exits_with_1(in_process: InProcess, tmp_path: Path) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}")
    add(study, LARGE, result_of(LARGE, Outcome.OOM))

    done = in_process("export", *STORAGE)

    assert done.returncode == 1
    assert not (tmp_path / "autotune-out").exists()


def test_an_interrupted_trial_shifts_no_number_that_a_user_sees(
    in_process: InProcess, tmp_path: Path
) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}")
    add(study, SLOW, result_of(SLOW))
    study.abandon(study.begin(LARGE))
    add(study, GOOD, result_of(GOOD, tokens_per_second=2000.0))
    log = logs_of(study, tmp_path) / "trial-2-3.log"
    log.parent.mkdir(parents=True)
    log.write_text("hello\n")

    whole = json.loads(in_process("show", *STORAGE, "--json").stdout)
    second = json.loads(in_process("show", "2", *STORAGE, "--json").stdout)
    best = json.loads(in_process("best", *STORAGE, "--json").stdout)

    assert [trial["number"] for trial in whole["trials"]] == [1, 2]
    assert second["point"] == GOOD.model_dump(mode="json")
    assert second["log"] == str(log)
    assert best["winner"]["trial"] == 2
    assert in_process("show", "3", *STORAGE).returncode == 2


def test_show_of_one_trial_says_in_words_how_it_ended(in_process: InProcess, filled: Study) -> None:
    text = in_process("show", "3", *STORAGE).stdout
    third = json.loads(in_process("show", "3", *STORAGE, "--json").stdout)

    assert "needs more than the budget of 1.0 GiB: out of memory in backward, at least 30 MiB short" in text
    assert third["error"].startswith("needs more than the budget")
    assert "in the longer run" in in_process("show", "1", *STORAGE).stdout
    assert json.loads(in_process("show", "1", *STORAGE, "--json").stdout)["error"] is None


@pytest.mark.parametrize("command", ["status", "best", "export", "report"])
def test_the_study_may_be_named_as_an_argument_too(
    in_process: InProcess, filled: Study, command: str
) -> None:
    assert in_process(command, filled.name, *STORAGE).returncode == 0
    assert in_process(command, *STORAGE, "--study", filled.name, filled.name).returncode == 0
    assert in_process(command, filled.name, *STORAGE, AUTOTUNE_STUDY="other").returncode == 0
    missing = in_process(command, "nosuch", *STORAGE)
    assert missing.returncode == 2 and "nosuch" in missing.stderr
    for words in (("--study", "other", filled.name), (filled.name, "--study", "other")):
        both = in_process(command, *STORAGE, *words)
        assert both.returncode == 2 and "two studies" in both.stderr


def test_a_command_that_is_suggested_can_be_typed_as_it_stands(in_process: InProcess, filled: Study) -> None:
    refused = in_process("export", *STORAGE, "--trial", "99")
    assert refused.returncode == 2
    suggested = shlex.split(refused.stderr.split("'")[1])
    assert suggested[0] == "autotune"
    assert in_process(*suggested[1:]).returncode == 0
