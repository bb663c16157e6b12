"""A mistake gets exit code 2 and one or two lines that say what is wrong: no more, and nothing is made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_process import InProcess

RUN = ("run", "--device", "cpu")
TINY = (*RUN, "--model", "tiny-llama")
OK = (*TINY, "--gpu-budget", "1GB")

MISTAKES = {
    "no model": ((*RUN, "--gpu-budget", "1GB"), "--model"),
    "unknown model": ((*RUN, "--model", "./nosuch", "--gpu-budget", "1GB"), "nosuch"),
    "misspelt card": ((*RUN, "--model", "tiny-lama", "--gpu-budget", "1GB"), "tiny-lama"),
    "no budget": (TINY, "--gpu-budget"),
    "bad budget": ((*TINY, "--gpu-budget", "lots"), "lots"),
    "zero budget": ((*TINY, "--gpu-budget", "0GB"), "0GB"),
    "budget of nothing": ((*TINY, "--gpu-budget", "nan"), "nan"),
    "budget above the machine": ((*TINY, "--gpu-budget", "900TB"), "cannot be proven here"),
    "budget without a unit": ((*TINY, "--gpu-budget", "24"), "24GB?"),
    "host budget without a unit": ((*OK, "--host-budget", "64"), "64GB?"),
    "export into a system folder": ((*OK, "--export-dir", "/proc/nosuch"), "--export-dir"),
    "export into a file": ((*OK, "--export-dir", "/dev/null"), "not a folder"),
    "export below a file": ((*OK, "--export-dir", "/dev/null/x"), "--export-dir"),
    "export to nowhere": (("export", "--export-dir", ""), "empty"),
    "run to nowhere": ((*OK, "--export-dir", ""), "empty"),
    "report to nowhere": (("report", "--output", ""), "empty"),
    "log file without a name": ((*OK, "--log-file", ""), "empty"),
    "storage without a name": (("best", "--storage", ""), "empty"),
    "study without a name": (("best", "--study", ""), "empty"),
    "nvme without a name": ((*OK, "--nvme-path", ""), "no folder"),
    "two budgets": ((*OK, "--gpu-model", "RTX 4090"), "--gpu-model"),
    "unknown gpu": ((*TINY, "--gpu-model", "RTX 4091"), "RTX 4091"),
    "unknown method": ((*OK, "--method", "lorra"), "lorra"),
    "too long a sequence": ((*OK, "--seq-len", "100000000"), "2,048"),
    "no sequence": ((*OK, "--seq-len", "0"), "--seq-len"),
    "bad global batch": ((*OK, "--global-batch", "some"), "some"),
    "bad duration": ((*OK, "--timeout", "5"), "1h30m"),
    "no trials": ((*OK, "--trials", "0"), "--trials"),
    "unknown trainer": ((*OK, "--trainer", "fooformers"), "fooformers"),
    "unknown space": ((*OK, "--space", "nosuch"), "nosuch"),
    "unknown sampler": ((*OK, "--sampler", "cmaes"), "cmaes"),
    "no storage": ((*OK, "--storage", "foo"), "sqlite:///"),
    "storage without a folder": ((*OK, "--storage", "sqlite:///no/such/folder/s.db"), "no/such/folder"),
    "quiet and verbose": ((*OK, "--quiet", "--verbose"), "--verbose"),
    "unknown flag": ((*OK, "--trails", "3"), "--trials"),
    "unknown command": (("rum",), "run"),
    "empty lora target": ((*OK, "--lora-targets", "q_proj,,v_proj"), "empty"),
    "no file of configurations": (
        ("estimate", "--configs", "nosuch.jsonl"),
        "cannot read nosuch.jsonl: No such file",
    ),
    "a folder of configurations": (("estimate", "--configs", "."), "Is a directory"),
    "log file nowhere": ((*OK, "--log-file", "no/such/folder/log"), "no/such/folder"),
    "status of nothing": (("status", "--storage", "sqlite:///none.db"), "autotune run"),
    "best of no such study": (("best", "--study", "x", "--storage", "sqlite:///none.db"), "'x'"),
    "export of nothing": (("export", "--storage", "sqlite:///none.db"), "autotune run"),
    "export of no such format": (("export", "--format", "gguf"), "gguf"),
    "show of nothing": (("show", "x", "--storage", "sqlite:///none.db"), "'x'"),
    "trial that is no number": (("show", "x", "three"), "three"),
    "models that match nothing": (("models", "nosuchmodel"), "nosuchmodel"),
    "space that is not there": (("spaces", "nosuch"), "nosuch"),
}


def error_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The error; a mistake that takes half a second to find comes after the line that says what was begun."""
    lines = done.stderr.strip().splitlines()
    return lines[1:] if len(lines) > 1 and lines[0].startswith("autotune 0.") else lines


@pytest.mark.parametrize(("args", "word"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_in_two_lines_at_most(
    args: tuple[str, ...], word: str, in_process: InProcess, tmp_path: Path
) -> None:
    done = in_process(*args)

    lines = error_lines(done)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert 1 <= len(lines) <= 2, done.stderr
    assert lines[0].startswith("error: ")
    assert word in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("zero_stag: [2]\n", "zero_stage"),
        ("zero_stage: [2]\noffload: [optimizer+parameters]\n", "ZeRO stage 3"),
        ("zero_stage: [7]\n", "7"),
        ("micro_batch_size: [\n", "space.yaml"),
        ("- 1\n", "space.yaml"),
        ("", "space"),
    ],
    ids=["unknown field", "impossible offload", "unknown value", "no YAML", "no mapping", "empty"],
)
@pytest.mark.parametrize("method", ["auto", "any"])
def test_a_faulty_space_is_told_in_two_lines_at_most(
    text: str, word: str, method: str, in_process: InProcess, tmp_path: Path
) -> None:
    (tmp_path / "space.yaml").write_text(text)

    done = in_process(*OK, "--space", "space.yaml", "--method", method)

    lines = error_lines(done)
    assert done.returncode == 2, done.stderr
    assert 1 <= len(lines) <= 2, done.stderr
    assert word in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


def test_a_password_in_the_storage_is_never_shown(in_process: InProcess) -> None:
    done = in_process(*OK, "--storage", "postgresql://me:s3cret@localhost:1/db", "--debug")

    assert done.returncode == 2
    assert "s3cret" not in done.stdout + done.stderr


def test_a_wrong_environment_variable_is_named(in_process: InProcess) -> None:
    done = in_process(*OK, AUTOTUNE_TRIALS="many")

    assert done.returncode == 2
    assert "AUTOTUNE_TRIALS" in done.stderr
    assert len(error_lines(done)) <= 2


def test_without_a_gpu_cuda_is_refused_with_what_to_do(in_process: InProcess) -> None:
    done = in_process(
        "run", "--model", "tiny-llama", "--gpu-budget", "1GB", "--device", "cuda", CUDA_VISIBLE_DEVICES=""
    )

    assert done.returncode == 2
    assert "--device cpu" in done.stderr
    assert len(error_lines(done)) <= 2
