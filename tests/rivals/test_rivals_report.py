"""The page made from rows, and finding rows again."""

from __future__ import annotations

from pathlib import Path

from benchmarks.json_rows import Row, append_row, read_rows
from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.contender import Found
from benchmarks.rivals.report import report
from benchmarks.rivals.rows import find_found, found_row, measured_row, measurements_of
from trials.wire import Outcome, Phase, Point, TrialResult

CASE = Case(model="qwen2.5-0.5b", method="full")
SETTING = Setting()
WINNER = Point(micro_batch_size=8, gradient_accumulation_steps=4, liger_kernel=True)
RIVAL = Point(micro_batch_size=4, gradient_accumulation_steps=8, zero_stage=1)


def measured(point: Point, speed: float | None) -> Row:
    result = TrialResult(
        trial_id="again",
        outcome=Outcome.OK if speed else Outcome.OOM,
        phase=Phase.LATER_STEP,
        tokens_per_second=speed,
        tokens_per_second_low=speed and speed - 100,
        tokens_per_second_high=speed and speed + 100,
    )
    return measured_row(CASE, SETTING, point, result)


def line_of(page: str, name: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def rows() -> list[Row]:
    ours = Found(
        status="finished",
        wall_seconds=96.0,
        point=WINNER,
        own_tokens_per_second=40500.0,
        tried=6,
    )
    theirs = Found(
        status="cut",
        wall_seconds=150.0,
        point=RIVAL,
        own_tokens_per_second=36000.0,
        tried=5,
        ooms=2,
        note="its own figure is at 4 sequences a step",
    )
    return [
        found_row(CASE, SETTING, "deepspeed-autotuner", theirs),
        found_row(CASE, SETTING, "autotune", ours),
        measured(WINNER, 40000.0),
        measured(RIVAL, 30000.0),
    ]


def test_every_contender_is_compared_by_what_was_measured_alike() -> None:
    page = report(rows(), "python -m benchmarks.rivals")
    assert line_of(page, "`autotune run`") == [
        "`autotune run`",
        "mb 8 x ga 4, ZeRO-0, ckpt 0, Liger",
        "40,000",
        "39,900 to 40,100",
        "100.0%",
        "40,500",
        "1.6",
        "6",
        "0",
        "finished",
    ]
    theirs = line_of(page, "DeepSpeed's autotuner")
    assert theirs[2:] == ["30,000", "29,900 to 30,100", "75.0%", "36,000", "2.5", "5", "2", "cut"]
    assert "- DeepSpeed's autotuner: its own figure is at 4 sequences a step." in page
    assert page.index("| `autotune run` |") < page.index("| DeepSpeed's autotuner |")


def test_who_has_not_run_and_whose_winner_does_not_run_here_is_said() -> None:
    page = report([*rows()[:3], measured(RIVAL, None)], "python -m benchmarks.rivals")
    assert line_of(page, "DeepSpeed's autotuner")[2:5] == ["oom", "", ""]
    assert line_of(page, "usual recipe")[-1] == "not run"
    assert "no Liger" not in page


def test_other_conditions_are_a_table_of_their_own() -> None:
    other = SETTING.model_copy(update={"global_batch": 8})
    page = report(
        [*rows(), found_row(CASE, other, "autotune", Found(status="failed", wall_seconds=3.0, note="x"))],
        "python -m benchmarks.rivals",
    )
    assert page.count("## qwen2.5-0.5b, full fine-tuning, 24.0 GiB") == 2
    assert "a global batch of 8." in page


def test_what_the_output_holds_is_found_again_under_the_same_conditions_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    kept: list[Row] = []
    for row in rows():
        append_row(path, kept, row)
    again = read_rows(path)
    assert again == kept
    setting = SETTING.model_dump(mode="json")
    assert find_found(again, CASE.name, setting, "autotune") == kept[1]
    assert find_found(again, CASE.name, setting | {"global_batch": 8}, "autotune") is None
    assert find_found(again, CASE.name, setting, "usual-recipe") is None
    assert measurements_of(again, CASE.name, setting, RIVAL.model_dump(mode="json")) == [kept[3]]
    unknown = Point(micro_batch_size=3).model_dump(mode="json")
    assert measurements_of(again, CASE.name, setting, unknown) == []


def test_of_several_measurements_the_median_counts_and_all_must_have_ended_well() -> None:
    page = report(
        [*rows(), measured(RIVAL, 20_000.0), measured(RIVAL, 33_000.0)], "python -m benchmarks.rivals"
    )
    assert line_of(page, "DeepSpeed's autotuner")[2:5] == ["30,000", "20,000 to 33,000 (3)", "75.0%"]
    page = report([*rows(), measured(RIVAL, None)], "python -m benchmarks.rivals")
    assert line_of(page, "DeepSpeed's autotuner")[2:5] == ["oom", "", ""]
