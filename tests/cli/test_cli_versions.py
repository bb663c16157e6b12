"""Commands that predict warn of library versions that prediction was not checked with."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_process import InProcess

from autotune.cli.doctor.versions import OPTIONAL_TESTED, TESTED
from autotune.prediction.checked import CHECKED, unchecked, version_warning

GOOD = {"torch": "2.11.0+cu130", "transformers": "5.17.0", "deepspeed": "0.19.8", "accelerate": "9.9"}


def test_checked_versions_are_silent_whatever_their_local_part() -> None:
    assert version_warning(GOOD) == ""
    assert version_warning(GOOD | {"torch": "2.13.0"}) == ""
    assert version_warning({}) == ""


def test_another_version_is_named_with_the_one_that_was_checked_and_what_to_do() -> None:
    assert version_warning(GOOD | {"deepspeed": "0.20.1"}) == (
        "prediction was checked with deepspeed 0.19.8, this is 0.20.1: "
        "validate with autotune doctor --validate"
    )
    assert version_warning(GOOD | {"deepspeed": "0.20.1", "torch": "2.14.0", "peft": "1.0"}) == (
        "prediction was checked with torch 2.11.0 or 2.13.0, deepspeed 0.19.8 and peft 0.21.2, here are "
        "torch 2.14.0, deepspeed 0.20.1 and peft 1.0: validate with autotune doctor --validate"
    )


@pytest.mark.parametrize("odd", ["0.19.9", "0.19.8rc1", "0.19.8.post1", "git-main"])
def test_near_versions_are_other_versions(odd: str) -> None:
    assert unchecked({"deepspeed": odd}) == {"deepspeed": odd}


def test_the_doctor_tests_the_same_versions() -> None:
    for library, versions in CHECKED.items():
        tested = TESTED.get(library) or OPTIONAL_TESTED[library][0]
        assert tested == versions


def test_the_warning_is_one_line_on_stderr(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path / "site" / "deepspeed-0.20.1.dist-info"
    later.mkdir(parents=True)
    (later / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.20.1\n")
    monkeypatch.syspath_prepend(str(later.parent))
    (tmp_path / "none.jsonl").write_text("")

    done = in_process("estimate", "--configs", "none.jsonl")

    [warning] = [line for line in done.stderr.splitlines() if "validate with" in line]
    assert warning.startswith("warning: prediction was checked with ") and "deepspeed 0.19.8" in warning
    assert "0.20.1" in warning
    assert done.stdout == ""
