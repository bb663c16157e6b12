"""How what is exported starts: on the GPUs it was measured on, with the model where it is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.export import EVERY, chosen_exporters, folder_files
from autotune.export.script import start_command
from autotune.study import Study, StudyInputs
from autotune.tuning.confirm import best_so_far
from autotune.tuning.handover import missing_folder, remember, winner_of
from trials.wire import ModelSpec

MODEL_KEYS = {
    "trl.yaml": "model_name_or_path",
    "llamafactory.yaml": "model_name_or_path",
    "axolotl.yaml": "base_model",
    "swift.yaml": "model",
}


def test_what_was_measured_on_several_gpus_starts_on_as_many(make_winner: Any) -> None:
    one, two = make_winner(lora_rank=8), make_winner(lora_rank=8, winner={"gpus": 2})
    texts = folder_files(two)
    for name in ("README.md", "train.py"):
        assert "torchrun --nproc-per-node 2 train.py" in texts[name]
        assert "python train.py" not in texts[name]
    assert "measured on 2 GPUs" in texts["README.md"]
    assert "N times the tokens" not in texts["README.md"]
    assert "N times the tokens" in folder_files(one)["README.md"]
    assert "python train.py --data" in folder_files(one)["README.md"]


def test_a_start_command_can_be_typed_whatever_the_folder_is_called() -> None:
    assert start_command(1, "out/my study/train.py") == "python 'out/my study/train.py'"
    assert start_command(4) == "torchrun --nproc-per-node 4 train.py"


def test_no_trainer_s_file_is_another_trainer_s_too(make_winner: Any) -> None:
    winner = make_winner(lora_rank=8)
    exporters = chosen_exporters([EVERY], winner.point)
    written = Counter(name for one in exporters for name in one.files(winner))
    assert [name for name, count in written.items() if count > 1] == []
    texts = folder_files(winner, exporters)
    assert "for the Hugging Face Trainer" in texts["transformers.yaml"].splitlines()[0]
    assert "train_peft.py" in texts["peft.yaml"] and "train_peft.py" not in texts["transformers.yaml"]
    assert "peft.yaml" in texts["train_peft.py"] and "transformers.yaml" not in texts["train_peft.py"]
    assert yaml.safe_load(texts["peft.yaml"]) == yaml.safe_load(texts["transformers.yaml"])


def test_what_is_held_is_told_only_where_an_allocator_keeps_it(make_winner: Any) -> None:
    assert "held where there is more" not in folder_files(make_winner())["README.md"]
    on_gpu = folder_files(make_winner(winner={"device": "cuda"}))["README.md"]
    assert "| device memory held where there is more | 400 MiB |" in on_gpu


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which has a model in `my model`."""
    work = tmp_path / "work"
    (work / "my model").mkdir(parents=True)
    (work / "my model" / "config.json").write_text("{}")
    monkeypatch.chdir(work)
    return work


def study_of(folder: Path, make_winner: Any, name: str, *, older: bool = False) -> Study:
    """A study of this model with one good trial."""
    winner = make_winner(lora_rank=8)
    study = Study.open(
        f"sqlite:///{folder / 's.db'}",
        StudyInputs(
            model=name, model_digest="1", method="lora", seq_len=32, global_batch=4, budget_bytes=1 << 30,
            device="cpu", space_name="lora", space_digest="2",
        ),
    )  # fmt: skip
    study.finish(study.begin(winner.point), winner.result)
    model = ModelSpec(name=name, config=winner.model.config)
    if older:
        study.set_note("model", model.model_dump(mode="json"))
    else:
        remember(study, model, "autotune run", 1)
    return study


def exported_sources(study: Study) -> set[str]:
    chosen = best_so_far(study)
    assert chosen is not None
    winner = winner_of(study, chosen)
    texts = folder_files(winner, chosen_exporters([EVERY], winner.point))
    found = {yaml.safe_load(texts[name])[key] for name, key in MODEL_KEYS.items()}
    return found | {json.loads(texts["autotune.json"])["weights_source"]}


@pytest.mark.parametrize("name", ["./my model", "my model", "../work/my model"])
def test_a_local_model_is_absolute_in_every_file_wherever_it_is_exported_from(
    make_winner: Any, local: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path, make_winner, name)
    monkeypatch.chdir(tmp_path)
    assert exported_sources(study) == {str(local / "my model")}


def test_a_study_of_an_older_version_finds_its_model_from_its_folder(
    make_winner: Any, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path, make_winner, "./my model", older=True)
    chosen = best_so_far(study)
    assert chosen is not None
    assert exported_sources(study) == {str(local / "my model")}
    assert missing_folder(winner_of(study, chosen)) is None
    monkeypatch.chdir(tmp_path)
    assert exported_sources(study) == {"./my model"}
    assert "./my model is not here" in (missing_folder(winner_of(study, chosen)) or "")


def test_a_hub_id_stays_one(make_winner: Any, local: Path, tmp_path: Path) -> None:
    study = study_of(tmp_path, make_winner, "org/tiny")
    chosen = best_so_far(study)
    assert chosen is not None
    assert exported_sources(study) == {"org/tiny"}
    assert missing_folder(winner_of(study, chosen)) is None
