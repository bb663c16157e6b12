"""The page of every kind of study says what there is to say, is well formed and asks nothing of anybody."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from html_outline import Outline
from report_studies import GIB, HOSTILE, WINNER, add, evidence_of, good, new_study

from autotune.report.evidence import Evidence, redact_word
from autotune.report.page import report_page, script_json

LARGEST_PAGE_BYTES = 6_000_000
KINDS = ("full", "empty", "hopeless", "single", "unconfirmed")


@pytest.fixture(scope="module")
def outlines(pages: dict[str, str]) -> dict[str, Outline]:
    return {kind: Outline(page) for kind, page in pages.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_well_formed_and_can_be_read_without_seeing_it(
    kind: str, outlines: dict[str, Outline]
) -> None:
    outline = outlines[kind]
    assert outline.errors == []
    levels = [level for level, _ in outline.headings]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attrs["id"] for _, attrs in outline.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [attrs["href"] for attrs in outline.all("a")]
    assert all(target and target[0] == "#" and target[1:] in ids for target in targets)
    assert all("scope" in attrs for attrs in outline.all("th"))
    images = [attrs for _, attrs in outline.elements if attrs.get("role") == "img"]
    assert all(attrs.get("aria-label") for attrs in images)
    scrolls = [attrs for _, attrs in outline.elements if "scroll" in (attrs.get("class") or "").split()]
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolls)
    assert outline.all("html") == [{"lang": "en"}]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_small_enough_to_send_and_names_no_other_file(
    kind: str, pages: dict[str, str], outlines: dict[str, Outline]
) -> None:
    assert len(pages[kind].encode()) < LARGEST_PAGE_BYTES
    for tag in ("script", "link", "img", "iframe", "source"):
        for attrs in outlines[kind].all(tag):
            assert (attrs.get("src") or attrs.get("href") or "data:").startswith("data:")
    policy = next(a["content"] for a in outlines[kind].all("meta") if "http-equiv" in a)
    assert policy is not None and policy.startswith("default-src 'none'") and "http" not in policy
    style = re.findall(r"<style>(.*?)</style>", pages[kind], re.DOTALL)[0]
    assert "url(" not in style and "@import" not in style


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_a_trial_or_a_user_wrote_becomes_part_of_the_page(
    kind: str, outlines: dict[str, Outline]
) -> None:
    outline = outlines[kind]
    assert outline.all("img") == []
    # The data, Plotly and the page's own script, or the last alone.
    assert len(outline.scripts) == (1 if kind == "empty" else 3)
    assert all("window.hacked" not in script for script in outline.scripts[1:])


def test_what_was_hostile_is_shown_as_it_was_written(outlines: dict[str, Outline]) -> None:
    assert f"RuntimeError: {HOSTILE}" in outlines["full"].words()
    assert HOSTILE in outlines["unconfirmed"].words()


def test_data_in_a_script_cannot_end_it() -> None:
    value = {"a": "</script><!-- & \u2028"}
    text = script_json(value)
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == value


def test_the_answer_comes_first(outlines: dict[str, Outline]) -> None:
    # The longer run: 0.994 x 15000 x 4/5.2 x (1 - 16/2000); 2 + 8.25 + 0.16 + 4 x 0.09 x 35 GiB.
    expected = f"{0.994 * 15000 * 4 / 5.2 * (1 - 16 / 2000):,.0f} tok/s in {2 + 8.25 + 0.16 + 12.6:.1f} GiB"
    words = outlines["full"].headings[0][1].replace("\u00a0", " ")
    assert words == f"{expected} of 24.0 GiB" == "11,377 tok/s in 23.0 GiB of 24.0 GiB"


def test_each_kind_of_study_says_how_it_stands(outlines: dict[str, Outline]) -> None:
    words = {kind: outline.words() for kind, outline in outlines.items()}
    titles = {kind: outline.headings[0][1] for kind, outline in outlines.items()}
    assert titles["empty"] == "No trial yet"
    assert titles["hopeless"] == "Nothing that was tried fits 24.0 GiB"
    assert "was 3.0 GiB short when it ended" in words["hopeless"]
    assert "3 trials: 2 oom, 1 host oom" in words["hopeless"]
    assert "it was measured too briefly to say" in words["single"]
    assert "Not confirmed yet" in words["single"] and "Not confirmed yet" in words["unconfirmed"]
    assert "ended in oom in evaluation, 1.0 GiB short" in words["unconfirmed"]
    assert "Confirmed in a longer run" in words["full"]
    assert "with an evaluation pass and a checkpoint saved" in words["full"]
    assert "112 configurations were never launched" in words["full"]
    assert "Caution" not in words["full"]
    left = "Of 310 unmeasured configurations one is more than 2% faster with a probability of 7%; 0.4% is"
    assert left in words["full"] and "unmeasured configurations" not in words["single"]
    for kind in KINDS:
        assert "autotune run --model llama3.1-8b --gpu-budget 24GB" in words[kind]


def test_every_trial_has_its_row_and_the_winners_is_marked(
    outlines: dict[str, Outline], evidence: dict[str, Evidence]
) -> None:
    rows = [attrs for attrs in outlines["full"].all("tr") if (attrs.get("id") or "").startswith("trial-")]
    assert len(rows) == len(evidence["full"].records) == 24
    # The fastest that fits stands at place 16 of the grid.
    assert [attrs["id"] for attrs in rows if attrs.get("class") == "winner"] == ["trial-17"]


def test_the_page_has_machine_versions_and_the_deepspeed_configuration(outlines: dict[str, Outline]) -> None:
    words = outlines["full"].words()
    for fact in ("NVIDIA H200", "580.65", "1980 MHz", "2.11.0", "0.19.8", "8,030,000,000"):
        assert fact in words
    assert '"train_micro_batch_size_per_gpu": 4' in words


def test_without_any_prediction_the_page_shows_what_was_measured(
    evidence: dict[str, Evidence],
) -> None:
    words = Outline(report_page(evidence["full"], None)).words()
    assert "could not be predicted here, so only what was measured is shown" in words
    assert "held where there is room 23.5 GiB" in words


def test_a_password_in_a_word_of_a_command_is_not_shown() -> None:
    url = "postgresql://me:pa55@host/db"
    assert redact_word(url) == redact_word(f"'{url}'").strip("'") == "postgresql://me:***@host/db"
    assert redact_word(f"--storage={url}") == "--storage=postgresql://me:***@host/db"
    assert redact_word("--gpu-budget=24GB") == "--gpu-budget=24GB"
    assert redact_word(f"'--storage={url}'") == "'--storage=postgresql://me:***@host/db'"


def test_a_trial_out_of_memory_by_an_unknown_amount_is_no_nearest_one(evidence: dict[str, Evidence]) -> None:
    short = [r.result.oom_short_bytes for r in evidence["hopeless"].records if r.result]
    assert short == [3 * GIB, None, None]
    page = Outline(report_page(evidence["hopeless"], None)).words()
    assert "The nearest, trial 1 (" in page


def test_trials_have_the_numbers_that_other_commands_show(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    study.abandon(study.begin(WINNER))
    add(study, WINNER, good(WINNER))
    evidence = evidence_of(study, tmp_path)
    # The interrupted one is not counted.
    assert evidence.records[0].number == 1
    outline = Outline(report_page(evidence, None))
    assert [a["id"] for a in outline.all("tr") if "id" in a] == ["trial-1"]
    assert '"customdata":[1]' in outline.scripts[0] and '"texts":{"1":' in outline.scripts[0]
