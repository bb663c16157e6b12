"""Completion in the shell: a real bash asks the real command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import Autotune, InProcess, clean_environment

from autotune.cli.completing import word_of_gpu
from autotune.gpus import find_gpu, list_gpus
from autotune.study import Study

# Bash calls the function with the command's name.
ASKING = """
eval "$(autotune completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_autotune_completion autotune
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(folder: Path, words: str, **environment: str) -> list[str]:
    """What bash offers for a line that is written so far; its last word is completed."""
    program = folder / "autotune"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m autotune "$@"\n')
    program.chmod(0o755)
    known = clean_environment(folder / "data")
    done = subprocess.run(
        ["bash", "--norc", "-c", ASKING.format(words=words)],
        env=known | {"PATH": f"{folder}:{known['PATH']}"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "some", "others"),
    [
        ("autotune pl", {"plan"}, {"run"}),
        ("autotune run --gpu-b", {"--gpu-budget"}, {"--gpus"}),
        ("autotune run --model tiny-", {"tiny-llama", "tiny-gpt2"}, {"gpt2"}),
        ("autotune run --model qwen/Qwen2.5-7", {"Qwen/Qwen2.5-7B"}, {"qwen2.5-7b"}),
        ("autotune plan --gpu-model rtx-40", {"RTX-4090"}, {"RTX-3090"}),
        ("autotune spaces q", {"qlora", "quick"}, {"lora"}),
        ("autotune run --method l", {"lora"}, {"qlora"}),
    ],
)
def test_bash_offers_commands_flags_cards_gpus_and_spaces(
    words: str, some: set[str], others: set[str], tmp_path: Path
) -> None:
    found = set(offered(tmp_path, words))

    assert found >= some
    assert found.isdisjoint(others)


def test_bash_offers_the_studies_of_the_storage(filled: Study, tmp_path: Path) -> None:
    assert offered(tmp_path, "autotune show --storage sqlite:///s.db tiny") == [filled.name]
    assert offered(tmp_path, "autotune best --study tiny", AUTOTUNE_STORAGE="sqlite:///s.db") == [filled.name]
    assert offered(tmp_path, "autotune best --study tiny", AUTOTUNE_STORAGE="nonsense") == []


def test_every_gpu_that_is_offered_is_understood() -> None:
    assert all(find_gpu(word_of_gpu(gpu.name)) == gpu for gpu in list_gpus())
    assert all(" " not in word_of_gpu(gpu.name) for gpu in list_gpus())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, in_process: InProcess) -> None:
    done = in_process("completion", shell)

    assert done.returncode == 0
    assert f"_AUTOTUNE_COMPLETE={shell}_complete" in done.stdout


def test_another_shell_is_a_mistake(autotune: Autotune, in_process: InProcess) -> None:
    assert in_process("completion", "tcsh").returncode == 2
