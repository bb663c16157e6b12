"""The page in a real browser: nothing complains, everything is drawn, phones and keyboards are enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, find_chromium

FIGURES = ("tradeoff", "budgets", "history", "parallel")
PHONE = 375
CONTENT = """Object.fromEntries([...document.querySelectorAll('[data-figure]')].map((plot) => [
  plot.dataset.figure, {
    marks: plot.querySelectorAll('.scatterlayer path').length,
    width: plot.querySelector('svg.main-svg').getBoundingClientRect().width,
    room: plot.clientWidth,
    labels: [...plot.querySelectorAll('text')].filter((text) => text.textContent.trim()).length,
  }]))"""
FOCUS = """(() => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  return [at.tagName, at.id || at.getAttribute('href') || at.getAttribute('aria-label') || at.textContent,
          style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
          box.width > 0 && box.height > 0];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    binary = find_chromium()
    if binary is None:
        message = "no Chromium here (apt-get install chromium)"
        if os.environ.get("REQUIRE_CHROMIUM"):
            pytest.fail(message)
        pytest.skip(message)
    with Chromium(binary, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def written(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for kind, page in pages.items():
        (folder / f"{kind}.html").write_text(page, encoding="utf-8")
    return {kind: folder / f"{kind}.html" for kind in pages}


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (PHONE, False)])
def test_every_figure_is_drawn_as_wide_as_there_is_room(
    width: int, dark: bool, browser: Chromium, written: dict[str, Path]
) -> None:
    browser.open(written["full"], width=width, dark=dark)
    content = browser.run(CONTENT)
    assert set(content) == set(FIGURES)
    for name, found in content.items():
        assert found["marks"] >= 4, name
        assert found["labels"] >= 5, name
        assert found["width"] == pytest.approx(found["room"], abs=1), name
    # 24 trials, the winner and one entry of the legend for each outcome.
    assert content["history"]["marks"] >= 25
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert browser.requests() == [written["full"].as_uri()]
    assert browser.run("window.hacked") is None


@pytest.mark.parametrize("kind", ["empty", "hopeless", "single", "unconfirmed"])
def test_other_studies_fit_a_phone_and_nothing_complains(
    kind: str, browser: Chromium, written: dict[str, Path]
) -> None:
    browser.open(written[kind], width=PHONE)
    assert browser.run("document.documentElement.scrollWidth") <= PHONE
    assert all(found["marks"] >= 1 for found in browser.run(CONTENT).values())
    assert browser.complaints() == [] and browser.run("window.hacked") is None


def test_the_pointer_shows_whose_a_mark_is(browser: Chromium, written: dict[str, Path]) -> None:
    browser.open(written["full"])
    at = browser.run(
        """{ const plot = document.querySelector('[data-figure=history]');
        plot.scrollIntoView({ block: 'center', behavior: 'instant' });
        const star = [...plot.querySelectorAll('.scatterlayer path.point')]
          .find((mark) => getComputedStyle(mark).fill === 'rgb(211, 146, 0)');
        const box = star.getBoundingClientRect();
        ({ x: box.x + box.width / 2, y: box.y + box.height / 2 }) }"""
    )
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
    browser.wait_for("!!document.querySelector('[data-figure=history] .hovertext')")
    words = browser.run("document.querySelector('[data-figure=history] .hovertext').textContent")
    assert "trial 17" in words and "in its longer run 11,377 tok/s" in words


def test_colours_follow_the_system_and_the_button(browser: Chromium, written: dict[str, Path]) -> None:
    colors = """[getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector('[data-figure=history] .xtick text')).fill]"""
    browser.open(written["full"], dark=False)
    light = browser.run(colors)
    browser.open(written["full"], dark=True)
    dark = browser.run(colors)
    assert light[0] != dark[0] and light[1] != dark[1]
    # Skip link, then the button: pressed from the keyboard.
    browser.press("Tab")
    browser.press("Tab")
    assert browser.run("document.activeElement.id") == "theme"
    browser.press("Enter")
    browser.wait_for(f"JSON.stringify({colors}) === JSON.stringify({light})")
    assert browser.run("document.getElementById('theme').getAttribute('aria-pressed')") == "false"
    browser.run("localStorage.clear()")


def test_every_stop_of_the_keyboard_is_visible_and_nothing_traps_it(
    browser: Chromium, written: dict[str, Path]
) -> None:
    browser.open(written["full"])
    stops = []
    for _ in range(200):
        browser.press("Tab")
        stop = browser.run(FOCUS)
        if stop[0] == "BODY":
            break
        stops.append(stop)
    else:
        pytest.fail("the last stop is never reached")
    assert stops[0][1] == "#main"
    assert [stop for stop in stops if not (stop[2] and stop[3])] == []
    reached = {stop[1] for stop in stops}
    assert {"theme", "highlight", "Table of all trials", "The command", "#trials"} <= reached


def test_the_trials_of_a_choice_stand_out_and_the_others_fade(
    browser: Chromium, written: dict[str, Path]
) -> None:
    browser.open(written["full"])
    faded = "[...document.querySelectorAll('[data-figure=parallel] .trace')].map((t) => t.style.opacity)"
    assert set(browser.run(faded)) == {"1"}
    browser.run(
        """{ const list = document.getElementById('highlight'); list.value = '0';
        list.dispatchEvent(new Event('change')); }"""
    )
    browser.wait_for(f"{faded}.includes('0.15')")
    assert "1" in browser.run(faded)


def test_the_table_sorts_by_the_column_that_is_pressed(browser: Chromium, written: dict[str, Path]) -> None:
    browser.open(written["full"])
    cell = "document.querySelector('table.sortable tbody tr').cells[0].textContent"
    press = "document.querySelectorAll('table.sortable th button')[4].click()"
    browser.run(press)
    browser.run(press)
    # Fastest first: the winner.
    assert browser.run(cell) == "17"
    assert browser.run("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"


def test_without_scripts_the_tables_and_the_answer_are_there(
    browser: Chromium, written: dict[str, Path]
) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.send("Page.navigate", url=written["full"].as_uri())
        browser.wait_for("document.readyState === 'complete' && !!document.querySelector('h1')")
        assert browser.run("document.querySelectorAll('table.sortable tbody tr').length") == 24
        assert browser.run("getComputedStyle(document.getElementById('theme')).display") == "none"
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
