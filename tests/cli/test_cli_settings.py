"""The configuration file: what wins over what, for every kind of flag, and what is wrong with it in words."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from cli_process import InProcess

from autotune.cli.init import settings_text
from autotune.cli.main import cli
from autotune.cli.run import command_line

# One flag of every kind: as the file has it, as the environment has it, as the flag, and each as a value.
KINDS: dict[str, tuple[str, str, Any, str, Any, str, Any, Any]] = {
    "whole number": ("trials", "3", 3, "4", 4, "5", 5, 40),
    "size": ("host-budget", '"2GB"', 2 * 2**30, "3GB", 3 * 2**30, "4GB", 4 * 2**30, None),
    "duration": ("timeout", '"2h"', 7200.0, "3h", 10800.0, "4h", 14400.0, 28800.0),
    "choice": ("sampler", '"gp"', "gp", "random", "random", "grid", "grid", "physics"),
    "number or any": ("global-batch", "16", 16, "any", "any", "8", 8, 32),
    "names": ("lora-targets", '["a", "b"]', ("a", "b"), "c,d", ("c", "d"), "e", ("e",), None),
    "text": ("study", '"from-file"', "from-file", "from-env", "from-env", "flag", "flag", None),
    "folder": ("nvme-path", '"."', ".", "/", "/", "/tmp", "/tmp", None),
}


def parsed(command: str, *args: str) -> dict[str, Any]:
    """The command's values as its function would get them."""
    group = click.Context(cli, info_name="autotune")
    found = cli.get_command(group, command)
    assert found is not None
    return found.make_context(command, list(args), parent=group).params


@pytest.fixture(autouse=True)
def _alone(in_process: InProcess) -> None:
    """A folder and an environment without anything of autotune's."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, in_file, file_value, in_env, env_value, flag, flag_value, default = KINDS[kind]
    name = key.replace("-", "_")

    def value(*args: str) -> Any:
        return parsed("run", "--model", "tiny-llama", *args)[name]

    assert value() == default
    Path("autotune.toml").write_text(f"[run]\n{key} = {in_file}\n")
    assert value() == file_value
    Path("autotune.toml").write_text(f"{name} = {in_file}\n")
    assert value() == file_value
    monkeypatch.setenv("AUTOTUNE_" + name.upper(), in_env)
    assert value() == env_value
    assert value(f"--{key}", flag) == flag_value


def test_a_switch_is_set_by_the_file_and_a_double_one_is_unset_by_the_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("autotune.toml").write_text("exact-global-batch = true\n[estimate]\nliger-kernel = true\n")

    assert parsed("run", "--model", "m")["exact_global_batch"] is True
    assert parsed("estimate")["liger_kernel"] is True
    assert parsed("estimate", "--no-liger-kernel")["liger_kernel"] is False
    monkeypatch.setenv("AUTOTUNE_EXACT_GLOBAL_BATCH", "false")
    assert parsed("run", "--model", "m")["exact_global_batch"] is False


def test_fractions_of_the_file_may_be_whole() -> None:
    Path("autotune.toml").write_text("[estimate]\ncheckpoint-fraction = 1\n")
    assert parsed("estimate")["checkpoint_fraction"] == 1.0


def test_a_command_s_own_table_comes_before_what_is_shared() -> None:
    Path("autotune.toml").write_text('model = "a"\nseq-len = 64\n[plan]\nseq-len = 128\n')

    assert parsed("plan")["seq_len"] == 128
    assert parsed("run")["seq_len"] == 64
    assert parsed("run")["model"] == "a"


def test_what_a_command_does_not_take_is_left_to_those_that_do() -> None:
    Path("autotune.toml").write_text('method = "auto"\n')

    assert parsed("run", "--model", "m")["method"] == "auto"
    assert parsed("estimate")["method"] is None


@pytest.mark.parametrize("way", ["flag", "variable", "before the command"])
def test_another_file_is_named_in_three_ways(way: str, in_process: InProcess) -> None:
    Path("autotune.toml").write_text('storage = "sqlite:///wrong.db"\n')
    Path("mine.toml").write_text('storage = "foo"\n')

    if way == "flag":
        done = in_process("list", "--config", "mine.toml")
    elif way == "variable":
        done = in_process("list", AUTOTUNE_CONFIG="mine.toml")
    else:
        done = in_process("--config", "mine.toml", "list")

    assert done.returncode == 2
    assert "foo" in done.stderr or "sqlite:///" in done.stderr


def test_a_group_s_commands_take_what_is_shared_and_their_table(in_process: InProcess) -> None:
    Path("autotune.toml").write_text('[study]\nstorage = "foo"\n')
    assert "not the URL of a storage" in in_process("study", "export", "x.jsonl").stderr

    Path("autotune.toml").write_text('storage = "foo"\n[study]\nstorag = "bar"\n')
    done = in_process("study", "export", "x.jsonl")
    assert "line 3" in done.stderr and "did you mean storage" in done.stderr


WRONG = {
    "unknown key": ("\ntrails = 3\n", "line 2", "did you mean trials"),
    "unknown key of a command": ("[run]\n\nseqlen = 3\n", "line 3", "did you mean seq-len"),
    "unknown command": ("[rum]\ntrials = 3\n", "line 1", "did you mean run"),
    "key of another command": ("[best]\ntrials = 3\n", "line 2", "'autotune best' has no setting"),
    "text for a number": ('trials = "many"\n', "line 1", "a whole number, not 'many'"),
    "switch for a number": ("trials = true\n", "line 1", "a whole number, not true"),
    "fraction for a whole number": ("trials = 2.5\n", "line 1", "a whole number, not 2.5"),
    "number for a text": ("study = 3\n", "line 1", "a text, not 3"),
    "number for a switch": ("load-weights = 1\n", "line 1", "true or false, not 1"),
    "number for a time": ("timeout = 8\n", "line 1", 'such as "8h"'),
    "size without a unit": ("gpu-budget = 24\n", "line 1", "24GB?"),
    "no such choice": ('sampler = "cmaes"\n', "line 1", "cmaes"),
    "out of range": ("trials = 0\n", "line 1", "0"),
    "list of numbers": ("lora-targets = [1]\n", "line 1", "list of names"),
    "wrong in another command's table": ('[estimate]\nseq-len = "x"\n', "line 2", "a whole number"),
    "set twice": ("seq-len = 1\nseq_len = 2\n", "autotune.toml", "twice"),
    "not for the file": ("debug = true\n", "line 1", "for the command line"),
    "no TOML": ("trials = \n", "line 1", "not TOML"),
}


@pytest.mark.parametrize(("text", "where", "words"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_the_file_is_told_with_its_line(
    text: str, where: str, words: str, in_process: InProcess
) -> None:
    Path("autotune.toml").write_text(text)

    done = in_process("run", "--model", "tiny-llama", "--device", "cpu", "--gpu-budget", "1GB")

    assert done.returncode == 2
    assert where in done.stderr and words in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_file_that_is_named_and_not_there_is_a_mistake(in_process: InProcess) -> None:
    done = in_process("list", "--config", "nosuch.toml")

    assert done.returncode == 2
    assert "nosuch.toml" in done.stderr


def test_of_two_ways_to_say_one_thing_the_closer_one_wins(in_process: InProcess) -> None:
    Path("autotune.toml").write_text('model = "tiny-llama"\ngpu-budget = "1GB"\nseq-len = 64\n')
    Path("c.jsonl").write_text('{"model": "./nosuch"}\n')

    # Neither `--gpu-budget and --gpu-model both ...` nor `--model does not go with --configs`.
    done = in_process("estimate", "--configs", "c.jsonl", "--gpu-model", "RTX 4090")

    assert "nosuch" in done.stdout
    assert "none of the 1 configurations" in done.stderr


def test_the_command_that_is_kept_needs_no_file() -> None:
    Path("autotune.toml").write_text('gpu-budget = "1GB"\n[run]\nload-weights = true\ntrials = 7\n')
    group = click.Context(cli, info_name="autotune")
    found = cli.get_command(group, "run")
    assert found is not None
    ctx = found.make_context("run", ["--model", "m"], parent=group, obj=["run", "--model", "m"])

    assert command_line(ctx, None).split()[:4] == ["autotune", "run", "--model", "m"]
    words = command_line(ctx, None)
    assert "--gpu-budget 1GB" in words and "--load-weights" in words and "--trials 7" in words


def test_init_writes_what_was_given_and_never_overwrites(in_process: InProcess) -> None:
    given = ("--model", "tiny-llama", "--gpu-budget", "1GB", "--trials", "3", "--lora-targets", "a,b")
    first = in_process("init", *given, "--exact-global-batch", "--json")
    again = in_process("init", "--model", "other")

    assert json.loads(first.stdout)["file"] == "autotune.toml"
    assert (first.returncode, again.returncode) == (0, 2)
    assert "--force" in again.stderr
    assert tomllib.loads(Path("autotune.toml").read_text()) == {
        "model": "tiny-llama",
        "gpu-budget": "1GB",
        "lora-targets": "a,b",
        "exact-global-batch": True,
        "run": {"trials": 3},
    }
    assert parsed("run")["gpu_budget"] == 2**30
    assert in_process("init", "--model", "other", "--force").returncode == 0
    assert parsed("run")["model"] == "other"
    assert in_process("init", "--config", "more.toml", "--trials", "none").returncode == 2
    assert not Path("more.toml").exists()


def test_every_line_that_init_comments_out_is_a_setting_that_is_accepted() -> None:
    lines = [
        line.removeprefix("# ")
        for line in settings_text({}).splitlines()
        if line.startswith("[") or (line.startswith("# ") and " = " in line)
    ]
    assert len(lines) > 25
    Path("autotune.toml").write_text("\n".join(lines))

    values = parsed("run")

    assert values["trials"] == 40 and values["gpu_budget"] == 24 * 2**30
    file = tomllib.loads(Path("autotune.toml").read_text())
    assert {*file, *file["run"]} - {"run"} >= {"model", "space", "timeout", "seed", "storage", "log-file"}


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
def test_a_file_of_the_usual_name_that_cannot_be_read_is_told(kind: str, in_process: InProcess) -> None:
    if kind == "folder":
        Path("autotune.toml").mkdir()
    else:
        Path("autotune.toml").symlink_to("gone.toml")
    done = in_process("plan", "--model", "tiny-llama", "--gpu-budget", "8GB")
    assert done.returncode == 2 and "autotune.toml" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_byte_order_mark_is_no_mistake() -> None:
    Path("autotune.toml").write_bytes(b"\xef\xbb\xbftrials = 7\n")
    assert parsed("run", "--model", "tiny-llama")["trials"] == 7
