"""`autotune export` for each trainer: what is written, what is lost and said so, what is offered instead."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from cli_process import InProcess
from study_samples import GOOD, MIB, add, make_study, result_of, study_inputs

from autotune.export import EXPORTERS
from autotune.models import resolve_model
from autotune.study import Study
from autotune.tuning.handover import remember
from trials.wire import Outcome, Point

STORAGE = ("--storage", "sqlite:///s.db")
SHARE = Point(micro_batch_size=4, gradient_accumulation_steps=2, lora_rank=16, checkpoint_fraction=0.5)
EVERY_LAYER = Point(micro_batch_size=8, lora_rank=16, checkpoint_fraction=1.0)
FULL = Point(micro_batch_size=4, gradient_accumulation_steps=2)


def speed(tokens_per_second: float) -> dict[str, float]:
    return {
        "tokens_per_second": tokens_per_second,
        "tokens_per_second_low": tokens_per_second - 5,
        "tokens_per_second_high": tokens_per_second + 5,
    }


@pytest.fixture
def shared(tmp_path: Path) -> Study:
    """A study whose winner checkpoints half of the layers; trials 2 and 3 check none and all of them."""
    study = make_study(f"sqlite:///{tmp_path / 's.db'}")
    add(study, SHARE, result_of(SHARE, **speed(3000.0)))
    add(study, GOOD, result_of(GOOD, **speed(2000.0)))
    add(study, EVERY_LAYER, result_of(EVERY_LAYER, **speed(2500.0)))
    return study


def test_a_loss_is_said_and_the_best_that_loses_nothing_is_offered(
    in_process: InProcess, shared: Study, tmp_path: Path
) -> None:
    done = in_process("export", *STORAGE, "--format", "trl", "--export-dir", "out")

    assert done.returncode == 0
    assert done.stdout.splitlines() == ["out/trl.yaml"]
    assert "trl: checkpoint_fraction 0.5 is lost" in done.stderr
    assert "trial 3 is the best measured, at 2,500 tok/s" in done.stderr
    offered = shlex.split(done.stderr.partition("autotune export ")[2])
    assert offered == [shared.name, *STORAGE, "--format", "trl", "--trial", "3"]
    top = (tmp_path / "out" / "trl.yaml").read_text().splitlines()[:3]
    assert any("LOST: checkpoint_fraction 0.5" in line for line in top)

    taken = in_process("export", *offered, "--export-dir", "out", "--strict")
    assert (taken.returncode, taken.stderr) == (0, "")
    written = yaml.safe_load((tmp_path / "out" / "trl.yaml").read_text())
    assert written["per_device_train_batch_size"] == 8
    assert written["gradient_checkpointing"] is True


def test_strict_makes_an_exit_code_of_a_loss(in_process: InProcess, shared: Study) -> None:
    done = in_process("export", *STORAGE, "--format", "trl", "--format", "script", "--strict", "--json")

    answer = json.loads(done.stdout)
    assert done.returncode == 1
    trl, script = answer["exports"]
    assert trl["lossless_trial"] == 3 and len(trl["lost"]) == 1
    assert script["lost"] == [] and script["lossless_trial"] is None
    assert in_process("export", *STORAGE, "--format", "script", "--strict").returncode == 0


def test_where_nothing_without_loss_was_measured_a_search_is_offered(
    in_process: InProcess, tmp_path: Path
) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}")
    add(study, SHARE, result_of(SHARE))
    add(study, GOOD, result_of(GOOD, Outcome.OOM))

    done = in_process("export", *STORAGE, "--format", "axolotl")

    assert done.returncode == 0
    assert "'autotune run' with --trainer axolotl" in done.stderr


def test_all_writes_every_trainer_s_files_and_says_what_is_left_out(
    in_process: InProcess, tmp_path: Path
) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}", method="full")
    add(study, FULL, result_of(FULL))

    done = in_process("export", *STORAGE, "--format", "all", "--export-dir", "out", "--json")

    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert [one["format"] for one in answer["exports"]] == [name for name in EXPORTERS if name != "peft"]
    for one in answer["exports"]:
        assert all(Path(name).is_file() for name in one["files"])
    assert "peft is left out" in done.stderr
    assert not (tmp_path / "out" / "adapter_config.json").exists()


def test_an_adapter_of_full_fine_tuning_is_a_mistake_and_nothing_is_written(
    in_process: InProcess, tmp_path: Path
) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}", method="full")
    add(study, FULL, result_of(FULL))

    done = in_process("export", *STORAGE, "--format", "trl", "--format", "peft", "--export-dir", "out")

    assert done.returncode == 2
    assert "full fine-tuning has none" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--trainer", "--export"])
def test_a_trainer_is_known_in_any_case(in_process: InProcess, flag: str) -> None:
    # What is refused is the combination, so the name was understood.
    run = ("run", "--model", "tiny-llama", "--device", "CPU", "--gpu-budget", "1GB", "--method", "FULL")
    done = in_process(*run, flag, "PEFT", *STORAGE)
    assert done.returncode == 2
    assert "full fine-tuning" in done.stderr


def test_an_offer_can_be_typed_whatever_the_study_is_called(in_process: InProcess, tmp_path: Path) -> None:
    study = Study.open(f"sqlite:///{tmp_path / 's.db'}", study_inputs(), "exotic nvme's")
    add(study, SHARE, result_of(SHARE, **speed(3000.0)))
    add(study, GOOD, result_of(GOOD, **speed(2000.0)))
    remember(study, resolve_model("tiny-llama"), "autotune run", 2)
    done = in_process("export", *STORAGE, "--format", "trl", "--export-dir", "out")
    offered = shlex.split(done.stderr.partition("autotune ")[2])
    assert offered[:2] == ["export", "exotic nvme's"]
    assert in_process(*offered, "--export-dir", "out", "--strict").returncode == 0


def test_a_run_that_could_only_end_so_is_refused_before_it_starts(in_process: InProcess) -> None:
    run = ("run", "--model", "tiny-llama", "--device", "cpu", "--gpu-budget", "1GB", "--method", "full")
    for more in (("--export", "peft"), ("--trainer", "peft")):
        done = in_process(*run, *more, *STORAGE)
        assert done.returncode == 2
        assert "full fine-tuning" in done.stderr


def test_the_study_s_trainer_is_what_it_is_exported_for(in_process: InProcess, tmp_path: Path) -> None:
    study = make_study(f"sqlite:///{tmp_path / 's.db'}", trainer="swift")
    add(study, GOOD, result_of(GOOD))

    assert in_process("export", *STORAGE, "--export-dir", "out").stdout == "out/swift.yaml\n"


@pytest.mark.parametrize(("trial", "word"), [("9", "no trial 9"), ("3", "ended in oom")])
def test_only_a_trial_that_ran_well_is_exported(
    trial: str, word: str, in_process: InProcess, filled: Study
) -> None:
    done = in_process("export", *STORAGE, "--trial", trial)

    assert done.returncode == 2
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_file_filled_in_for_another_winner_is_kept_under_another_name(
    in_process: InProcess, shared: Study, tmp_path: Path
) -> None:
    out = ("--export-dir", "out")
    in_process("export", *STORAGE, *out, "--format", "trl", "--trial", "3")
    config = tmp_path / "out" / "trl.yaml"
    config.write_text("mine")

    # The same point: the file still fits the others.
    in_process("export", *STORAGE, *out, "--format", "swift", "--trial", "3")
    assert config.read_text() == "mine"

    in_process("export", *STORAGE, *out, "--format", "swift", "--trial", "2")
    assert not config.exists()
    assert (tmp_path / "out" / "trl.yaml.old").read_text() == "mine"


def test_a_user_s_own_file_of_that_name_is_not_overwritten(
    in_process: InProcess, shared: Study, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trl.yaml").write_text("mine")

    done = in_process("export", *STORAGE, "--export-dir", "out", "--format", "trl")
    assert done.returncode == 2
    assert "trl.yaml" in done.stderr
    assert in_process("export", *STORAGE, "--export-dir", "out", "--format", "swift").returncode == 0
    assert (tmp_path / "out" / "trl.yaml").read_text() == "mine"


def test_a_plan_for_a_trainer_has_only_what_it_can_do() -> None:
    from autotune.space import Capabilities, Setting, enumerate_points, load_space

    def shares(trainer: str | None) -> set[float]:
        machine = Capabilities("cuda", liger=True, bitsandbytes=True)
        setting = Setting("lora", 32, False, 1, 16, machine, trainer=trainer)
        return {point.checkpoint_fraction for point in enumerate_points(load_space("lora"), setting).points}

    assert shares("trl") == {0.0, 1.0}
    assert shares(None) == shares("script") == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_memory_figures_of_the_sample_are_in_the_header(
    in_process: InProcess, shared: Study, tmp_path: Path
) -> None:
    in_process("export", *STORAGE, "--format", "llamafactory", "--export-dir", "out", "--trial", "3")

    first = (tmp_path / "out" / "llamafactory.yaml").read_text().splitlines()[0]
    assert "2,500 tokens/s in 200 MiB" in first and result_of(GOOD).required_device_bytes == 200 * MIB


def test_formats_from_the_environment_are_reproduced_one_flag_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.cli.run import command_line, run

    monkeypatch.setenv("AUTOTUNE_EXPORT", "trl swift")
    words = ["--model", "tiny-llama"]
    context = run.make_context("run", list(words), obj=["run", *words])

    assert context.params["export"] == ("trl", "swift")
    assert command_line(context, None) == "autotune run --model tiny-llama --export trl --export swift"
