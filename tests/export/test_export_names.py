"""Names that an imported study may carry: none of them gets out of the place where it is written."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml

from autotune.export import EVERY, Winner, chosen_exporters, folder_files
from autotune.export.escaping import code_span, docstring, one_command, one_line, shell_words
from trials.wire import GpuState, ModelSpec

NASTY = (
    r"/data/my\Nmodel",
    r"C:\Users\new\x",
    'x/"""\nprint("PWNED")\nr"""',
    "x/'''\nprint('PWNED')\nr'''",
    "line\nbreak",
    "old\rmac",
    "next\x85line\u2028and\u2029paragraph",
    "\x1b[31mred\x07",
    "right\u202eto left",
    "%(prog)s and %d",
    "coding: rot13",
    "# [if lora]",
    "$header ${start}",
    "```\n$(touch pwned)\n```",
    "`code` <b>bold</b> | __x__ [a](b)",
    "a\nb: c",
    "  spaces  ",
    "- [] {}: #'\"",
    "ends with \\",
    'ends with "',
    "\u00fcn\u00efcode \U0001f600",
    "null",
    "org/'; touch pwned; '",
)
PLAIN = "org/model"


def with_name(make_winner: Any, name: str, **point: Any) -> Winner:
    """A winner that has the name wherever a study has texts."""
    config = make_winner().model.config
    plain = make_winner(lora_rank=8, **point)
    targets = ("q_proj", name) if name != PLAIN else ("q_proj", "v_proj")
    result = plain.result.model_copy(
        update={
            "lora_targets": targets,
            "versions": {"torch": name, "peft": name},
            "gpu": GpuState(name=name),
        }
    )
    winner: Winner = make_winner(
        lora_rank=8,
        winner={
            "study": name,
            "model": ModelSpec(name=name, config=config, weights=name),
            "command": f"autotune run --model {name}",
            "result": result,
        },
        **point,
    )
    return winner


def all_files(winner: Winner) -> dict[str, str]:
    return folder_files(winner, chosen_exporters([EVERY], winner.point))


def shape(script: str) -> str:
    """What a script does: its tree without the texts of docstrings."""
    tree = ast.parse(script)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module):
            first = node.body[0]
            assert isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            first.value.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("name", NASTY)
def test_no_name_becomes_code_or_breaks_a_file(make_winner: Any, name: str) -> None:
    point = {"quantization": "nf4", "optimizer": "adamw8bit", "checkpoint_fraction": 0.5}
    nice, nasty = (
        all_files(with_name(make_winner, PLAIN, **point)),
        all_files(with_name(make_winner, name, **point)),
    )
    assert set(nice) == set(nasty)
    for file, text in nasty.items():
        text.encode("utf-8")
        if file.endswith(".py"):
            assert shape(text) == shape(nice[file]), file
        elif file.endswith(".yaml"):
            expected = yaml.safe_load(nice[file])
            parsed = yaml.safe_load(text)
            assert list(parsed) == list(expected), file
            for key, value in expected.items():
                if value == PLAIN:
                    assert parsed[key] == name, (file, key)
            # The header stays one of comments: as many lines as with the nice name.
            assert comments(text) == comments(nice[file]), file
        elif file.endswith(".json"):
            json.loads(text)
    assert json.loads(nasty["autotune.json"])["weights_source"] == name
    assert name in json.loads(nasty["adapter_config.json"])["target_modules"]
    for file in ("trl.yaml", "swift.yaml"):
        parsed = yaml.safe_load(nasty[file])
        assert name in parsed.get("lora_target_modules", parsed.get("target_modules")), file


def comments(text: str) -> int:
    return len([line for line in text.split("\n") if line.startswith("#")])


@pytest.mark.parametrize("name", NASTY)
def test_the_commands_of_the_readme_are_as_many_as_with_a_nice_name(make_winner: Any, name: str) -> None:
    nice = commands(all_files(with_name(make_winner, PLAIN))["README.md"])
    nasty = commands(all_files(with_name(make_winner, name))["README.md"])
    assert len(nasty) == len(nice)
    assert [words[0] for words in nasty if words] == [words[0] for words in nice if words]
    install = next(words for words in nasty if words[:2] == ["pip", "install"])
    assert len(install) == len(next(words for words in nice if words[:2] == ["pip", "install"]))


def commands(readme: str) -> list[list[str]]:
    """The words of each line of the README's shell blocks, where no operator is unquoted."""
    found = []
    for _, block in re.findall(r"^(`{3,})sh\n(.*?)\n\1$", readme, re.MULTILINE | re.DOTALL):
        for line in block.split("\n"):
            unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", line)
            assert not set(";|&<>()`\\") & set(unquoted), line
            found.append(shlex.split(line, comments=True))
    return found


@pytest.mark.parametrize("name", NASTY)
def test_a_shell_reads_each_word_as_it_was(name: str) -> None:
    words = ["-c", "import sys; print(ascii(sys.argv[1:]))", name, "next"]
    command = shell_words([sys.executable, *words])
    assert len(command.splitlines()) == 1
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.strip() == ascii([name, "next"])


@pytest.mark.parametrize("name", NASTY)
def test_a_docstring_and_a_comment_say_the_name(name: str) -> None:
    text = docstring(one_line(name))
    value = ast.literal_eval(f'"""{text}"""')
    # As argparse shows it.
    shown = value % {"prog": "x"} if "%(prog)" in value else value
    assert shown == one_line(name)
    assert len(one_line(name).splitlines()) == 1
    assert one_line(PLAIN) == PLAIN


def test_a_command_of_a_study_is_one_command() -> None:
    typed = shlex.join(["autotune", "run", "--model", "./my model", "--gpu-budget", "24GB"])
    assert one_command(typed) == typed
    assert shlex.split(one_command("autotune run; rm -rf $HOME")) == [
        "autotune",
        "run;",
        "rm",
        "-rf",
        "$HOME",
    ]
    assert one_command("autotune run; rm -rf $HOME") == "autotune 'run;' rm -rf '$HOME'"
    assert shlex.split(one_command("autotune don't; x")) == ["autotune", "don't;", "x"]


def test_code_in_markdown_keeps_its_backticks_inside() -> None:
    assert code_span("a/b") == "`a/b`"
    assert code_span("a``b") == "```a``b```"
    assert code_span("`a`") == "`` `a` ``"
