"""What flags and environment variables accept, and which of them wins."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from autotune.cli.options import option, run_options, search_options
from autotune.cli.values import SHARE, SIZES, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("30m", 1800.0),
        ("8h", 28_800.0),
        ("1h30m", 5400.0),
        ("1h 30m 15s", 5415.0),
        ("1.5h", 5400.0),
        ("2d", 172_800.0),
        ("10M", 600.0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "h", "0s", "-5m", "30m1h", "1h1h", "5 minutes", "1e3s", "nan", "infs"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 90s|largest first"):
        parse_duration(text)


def _parse(*args: str, **environment: str) -> dict[str, Any]:
    """What the flags of `run` come to."""
    seen: dict[str, Any] = {}

    @click.command()
    @search_options
    @run_options
    def probe(**flags: Any) -> None:
        seen.update(flags)

    runner = CliRunner(env=environment)
    result = runner.invoke(probe, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen


def test_defaults_are_those_of_the_design() -> None:
    flags = _parse("--model", "x")

    assert flags["method"] == "auto"
    assert flags["global_batch"] == 32
    assert flags["min_rank"] == 16
    assert flags["gpus"] == 1
    assert flags["trials"] == 40
    assert flags["timeout"] == 8 * 3600
    assert flags["sampler"] == "physics"
    assert flags["until"] == 0.01
    assert flags["seq_len"] is None and flags["gpu_budget"] is None and flags["device"] is None


def test_values_have_their_types() -> None:
    flags = _parse(
        "--model", "x", "--gpu-budget", "24GB", "--global-batch", "any", "--timeout", "1h30m", 
        "--method", "QLoRA",
        "--lora-targets", "q_proj, v_proj,q_proj",
    )  # fmt: skip

    assert flags["gpu_budget"] == 24 * 2**30
    assert flags["global_batch"] == "any"
    assert flags["timeout"] == 5400.0
    assert flags["method"] == "qlora"
    assert flags["lora_targets"] == ("q_proj", "v_proj")


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("0", 0.0), ("0.02", 0.02), ("0%", 0.0)]
)
def test_a_share_is_a_percentage_or_a_number_below_one(text: str, share: float) -> None:
    assert _parse("--model", "x", "--until", text)["until"] == pytest.approx(share)


@pytest.mark.parametrize("text", ["1", "100%", "-1%", "little", "%", "nan"])
def test_what_is_no_share_is_told(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no share: write 1%"):
        SHARE.convert(text, None, None)


def test_budgets_are_sizes_or_the_curve() -> None:
    assert SIZES.convert("16GB, 24GiB", None, None) == (16 * 2**30, 24 * 2**30)
    assert SIZES.convert("curve", None, None) == ()
    with pytest.raises(click.BadParameter, match="not a size"):
        SIZES.convert("16GB,lots", None, None)


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"AUTOTUNE_TRIALS": "7", "AUTOTUNE_GPU_BUDGET": "8GB", "AUTOTUNE_LOAD_WEIGHTS": "true"}

    from_environment = _parse("--model", "x", **environment)
    from_flags = _parse("--model", "x", "--trials", "9", "--gpu-budget", "6GiB", **environment)

    assert (from_environment["trials"], from_environment["gpu_budget"]) == (7, 8 * 2**30)
    assert (from_flags["trials"], from_flags["gpu_budget"]) == (9, 6 * 2**30)
    assert from_environment["load_weights"] is True


def test_an_empty_variable_is_no_value() -> None:
    assert _parse("--model", "x", AUTOTUNE_TRIALS="")["trials"] == 40


def test_the_variable_of_an_option_follows_from_its_flag() -> None:
    @click.command()
    @option("--two-words")
    def probe(two_words: str | None) -> None:
        click.echo(two_words)

    assert CliRunner(env={"AUTOTUNE_TWO_WORDS": "yes"}).invoke(probe).output == "yes\n"
