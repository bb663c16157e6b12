"""What a run hands over at its end, when nobody is there to mend a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.export import EXPORTERS
from autotune.tuning.exporting import export_winner, refuse_senseless


def test_what_makes_no_sense_for_the_winner_is_left_out_and_said(make_winner: Any, tmp_path: Path) -> None:
    said: list[str] = []
    folder = export_winner(make_winner(), tmp_path / "out", ["peft", "trl"], said.append)
    assert (folder / "trl.yaml").exists()
    assert not (folder / "adapter_config.json").exists()
    assert len(said) == 1 and said[0].startswith("peft is left out")


def test_what_is_lost_is_said_with_the_flag_that_avoids_it(make_winner: Any, tmp_path: Path) -> None:
    said: list[str] = []
    winner = make_winner(lora_rank=8, checkpoint_fraction=0.5)
    folder = export_winner(winner, tmp_path / "out", ["axolotl", "script"], said.append)
    assert (folder / "axolotl.yaml").exists()
    assert len(said) == 1
    assert "checkpoint_fraction 0.5 is lost" in said[0] and "--trainer axolotl" in said[0]


def test_all_is_every_trainer_that_makes_sense(make_winner: Any, tmp_path: Path) -> None:
    folder = export_winner(make_winner(lora_rank=8), tmp_path / "out", ["all"], lambda text: None)
    for exporter in EXPORTERS.values():
        assert all((folder / name).is_file() for name in exporter.names), exporter.name


def test_only_a_run_that_must_end_in_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="full fine-tuning has none"):
        refuse_senseless(["trl", "peft"], "full")
    refuse_senseless(["peft"], "any")
    refuse_senseless(["all"], "full")
