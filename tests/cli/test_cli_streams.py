"""Results on stdout and nothing else there; readers that leave; errors that are nobody's mistake."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_process import Autotune, InProcess, clean_environment

from autotune.cli.failure import describe, report
from autotune.cli.output import plain_json
from autotune.errors import EnvironmentProblem, NothingFits, UsageError
from autotune.study import Study

CLOSED_TERMINAL = """
import sys
sys.stdin.readline()
from autotune.cli.main import main
sys.exit(main(["models"]))
"""


def test_a_reader_that_leaves_early_is_no_error(autotune: Autotune) -> None:
    process = subprocess.Popen(
        autotune.command("models", "--json"),
        env=clean_environment(autotune.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()

    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_that_cannot_be_written_is_an_error(autotune: Autotune) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            autotune.command("models"),
            env=clean_environment(autotune.folder),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) <= 2


def test_an_output_without_unicode_is_no_error(autotune: Autotune) -> None:
    done = autotune("models", PYTHONIOENCODING="ascii", LC_ALL="C")

    assert done.returncode == 0
    assert done.stderr == ""


def test_json_has_null_for_what_json_cannot_say() -> None:
    value = {"a": float("nan"), "b": [float("inf"), 1.5], "c": (1, {"d": -float("inf")})}

    assert plain_json(value) == {"a": None, "b": [None, 1.5], "c": [1, {"d": None}]}


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (UsageError("bad flag", "give another"), 2, ["error: bad flag", "  give another"]),
        (EnvironmentProblem("no disk"), 2, ["error: no disk"]),
        (NothingFits("nothing fits", "more memory"), 1, ["error: nothing fits", "  more memory"]),
        (
            UsageError("two\nlines of\n  message", "two\nof hint"),
            2,
            ["error: two lines of message", "  two of hint"],
        ),
        (click.UsageError("Bad thing."), 2, ["error: bad thing"]),
        (
            OSError(28, "No space left on device", "/x/log"),
            2,
            ["error: No space left on device: /x/log", "  make room or give another folder"],
        ),
        (
            ZeroDivisionError("division by zero"),
            2,
            [
                "error: internal error (ZeroDivisionError: division by zero)",
                "  please report it; --debug shows the traceback",
            ],
        ),
    ],
)
def test_each_error_has_its_code_and_one_or_two_lines(
    error: Exception, code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, debug=False) == code
    assert capsys.readouterr().err.splitlines() == lines
    assert describe(error)[2] == code


def test_debug_shows_the_traceback_and_then_the_error(in_process: InProcess) -> None:
    quiet = in_process("best", "--storage", "sqlite:///none.db")
    loud = in_process("best", "--storage", "sqlite:///none.db", "--debug")
    before_the_command = in_process("--debug", "best", "--storage", "sqlite:///none.db")

    assert "Traceback" not in quiet.stderr
    for done in (loud, before_the_command):
        assert done.returncode == 2
        assert done.stderr.startswith("Traceback")
        assert done.stderr.endswith(quiet.stderr)


def test_models_are_found_by_words_in_any_case(in_process: InProcess) -> None:
    every = json.loads(in_process("models", "--json").stdout)
    some = json.loads(in_process("models", "QWEN2.5", "0.5b", "--json").stdout)
    none = json.loads(in_process("models", "nosuchmodel", "--json").stdout)

    assert {"tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-moe"} <= {card["name"] for card in every}
    # The published count of Qwen2.5-0.5B, with its tied embedding counted once.
    assert [(card["hub_id"], card["parameters"]) for card in some] == [("Qwen/Qwen2.5-0.5B", 494_032_768)]
    assert none == []


def test_spaces_show_their_values_and_count_their_points(in_process: InProcess, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("micro_batch_size: [1, 2, 4]\nzero_stage: [0, 1]\nlora_rank: [16]\n")

    shipped = json.loads(in_process("spaces", "--json").stdout)
    mine = json.loads(in_process("spaces", "mine.yaml", "--json").stdout)

    assert {space["name"] for space in shipped} == {"full", "lora", "qlora", "any", "quick"}
    assert all(space["points"] > 0 for space in shipped)
    # Every micro batch divides 32; two stages; one rank.
    assert mine["points"] == 3 * 2
    assert mine["values"] == {"micro_batch_size": [1, 2, 4], "zero_stage": [0, 1], "lora_rank": [16]}
    assert "6 distinct points" in in_process("spaces", "mine.yaml").stdout


def test_a_terminal_that_was_closed_is_no_error(autotune: Autotune) -> None:
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CLOSED_TERMINAL],
        env=clean_environment(autotune.folder),
        stdin=subprocess.PIPE,
        stdout=follower,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(follower)
    os.close(leader)
    _, err = process.communicate("go\n", timeout=60)

    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["list", "best", "best --json"])
def test_a_daemon_with_closed_streams_gets_the_same_exit_code(
    autotune: Autotune, filled: Study, command: str, closed: str
) -> None:
    words = " ".join(map(shlex.quote, autotune.command(*command.split(), "--storage", "sqlite:///s.db")))
    done = subprocess.run(
        ["sh", "-c", f"{words} {closed}"],
        cwd=autotune.folder,
        env=clean_environment(autotune.folder),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert bool(done.stdout) == (" >&-" not in f" {closed}")
    assert done.stderr == ""
    assert len(Study.load("sqlite:///" + str(autotune.folder / "s.db"), filled.name).records()) == len(
        filled.records()
    )


@pytest.mark.parametrize(
    "words", [("--export-dir", "o\udce9 x"), ("--model", "d\udce9"), ("--study", "\udcff")]
)
def test_a_path_that_is_not_utf8_is_refused_before_anything_runs(
    in_process: InProcess, words: tuple[str, str]
) -> None:
    done = in_process("run", "--model", "tiny-llama", "--gpu-budget", "1GB", "--device", "cpu", *words)
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr and len(done.stderr.splitlines()) == 2
    assert in_process("list", AUTOTUNE_STORAGE="sqlite:///\udce9.db").returncode == 2
