"""What is drawn on terminals and written elsewhere while a study runs."""

from __future__ import annotations

import dataclasses
import io
import os
import pty
import re
import time

import pytest

from autotune.display.group import Group
from autotune.display.lines import Lines, expected_words
from autotune.display.live import LiveTable
from autotune.display.pace import CONFIRMATION_TRIALS, Pace
from autotune.display.screen import Screen, can_draw, open_screen
from autotune.display.stream import ProgressStream
from autotune.tuning.observer import Opened, Progress
from trials.wire import Outcome, Phase, Point, TrialResult

POINT = Point(micro_batch_size=4, gradient_accumulation_steps=2, lora_rank=16)
LONG = Point(
    micro_batch_size=16,
    zero_stage=3,
    offload="nvme_optimizer+parameters",
    lora_rank=128,
    quantization="nf4",
    attention="flash_attention_2",
    liger_kernel=True,
    optimizer="paged_adamw8bit",
)
GOOD = TrialResult(
    trial_id="t",
    outcome=Outcome.OK,
    phase=Phase.LATER_STEP,
    tokens_per_second=5432.0,
    required_device_bytes=812 * 2**20,
)
OOM = TrialResult(trial_id="t", outcome=Outcome.OOM, phase=Phase.BACKWARD, message="out of memory")
OPENED = Opened(study="tiny-1", stages=("lora: 9 points",), measured=2, trials=12, sampler="tpe")


def _progress(measured: int, best: Point | None = None) -> Progress:
    return Progress(
        measured=measured,
        trials=12,
        candidates=40,
        seconds_left=3600.0,
        best_point=best,
        best_result=GOOD if best else None,
    )


def test_the_time_left_is_what_trials_took_and_before_the_first_the_search_s_own() -> None:
    now = 100.0
    pace = Pace(lambda: now)
    assert pace.seconds_left() is None
    pace.started(_progress(2))
    now += 5.0
    assert pace.seconds_left() == (3595.0, False)
    now += 5.0
    pace.finished(_progress(3))
    # Nine more of ten seconds each, and the confirmation.
    assert pace.seconds_left() == (90.0 + CONFIRMATION_TRIALS * 10.0, True)
    now += 4.0
    assert pace.seconds_left() == (86.0 + CONFIRMATION_TRIALS * 10.0, True)


def test_of_few_points_no_more_trials_are_expected_than_there_are_points() -> None:
    few = dataclasses.replace(_progress(2), candidates=3)

    assert (few.expected, expected_words(few)) == (5, "about 5")
    assert expected_words(_progress(2)) == "12"


def _whole_study(screen: Screen) -> None:
    """Everything that can happen, in the order in which it does."""
    screen.say("autotune 0.1.0: tiny-llama, budget 1 GiB, cpu")
    screen.opened(OPENED)
    screen.trial_started(3, POINT, _progress(2))
    screen.trial_event({"event": "phase", "phase": "load"})
    screen.trial_event(
        {"event": "step", "index": 1, "seconds": 0.5, "tokens_per_second": 99.0, "timed": True}
    )
    screen.trial_event({"event": "note", "text": "a note"})
    screen.trial_finished(3, POINT, GOOD, _progress(3, POINT))
    screen.trial_started(4, LONG, _progress(3, POINT))
    screen.trial_finished(4, LONG, OOM, _progress(4, POINT))
    screen.confirming(POINT)
    screen.confirmed(POINT, GOOD)
    screen.close()


def test_elsewhere_there_is_one_line_per_trial_and_nothing_is_drawn() -> None:
    stream = io.StringIO()
    _whole_study(Lines(stream))

    text = stream.getvalue()
    trials = [line for line in text.splitlines() if line.startswith("trial ")]
    assert len(trials) == 2
    assert trials[0].endswith("best") and not trials[1].endswith("best")
    assert "study tiny-1: 12 trials, 2 of them measured already" in text
    assert "a note" not in text
    assert "\x1b" not in text and "\r" not in text


def test_verbose_lines_have_phases_steps_and_notes_and_a_log_has_times() -> None:
    stream = io.StringIO()
    _whole_study(Lines(stream, verbose=True, timestamps=True))

    text = stream.getvalue()
    assert all(words in text for words in ("loading the model", "step 1", "a note"))
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in text.splitlines())


def _drawn(columns: int) -> str:
    """What a terminal of this width gets of a whole study."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(columns))
        patched.setenv("LINES", "40")
        patched.setenv("TERM", "xterm-256color")
        patched.delenv("NO_COLOR", raising=False)
        os.set_blocking(leader, False)
        _whole_study(LiveTable(ProgressStream(terminal)))
        chunks = []
        while True:
            try:
                chunks.append(os.read(leader, 1 << 16))
            except BlockingIOError:
                break
    os.close(leader)
    return b"".join(chunks).decode()


def test_a_terminal_of_eighty_columns_gets_a_table_that_fits() -> None:
    text = _drawn(80)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)

    assert "\x1b[" in text
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 80
    for words in (
        "5,432 *",
        "812 MiB",
        "best 5,432 tok/s",
        "8 trials left",
        "left, 40 points left",
        "40 points left",
        "oom",
    ):
        assert words in plain


def test_a_wide_terminal_shows_a_long_point_on_one_line() -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", _drawn(200))

    assert any("offload nvme_optimizer+parameters" in line and "liger" in line for line in plain.split("\n"))


def test_the_cursor_is_back_when_the_table_is_put_away() -> None:
    text = _drawn(80)

    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_what_is_said_before_the_study_is_open_comes_then_or_never() -> None:
    refused, accepted = io.StringIO(), io.StringIO()

    group = Group([Lines(refused)])
    group.say("autotune 0.1.0")
    group.close()
    other = Group([Lines(accepted)])
    other.say("autotune 0.1.0")
    assert accepted.getvalue() == ""
    other.opened(OPENED)
    other.say("more")

    assert refused.getvalue() == ""
    assert accepted.getvalue().splitlines()[0] == "autotune 0.1.0"
    assert accepted.getvalue().splitlines()[-1] == "more"


def test_a_person_at_a_terminal_does_not_wait_for_it() -> None:
    stream = io.StringIO()
    group = Group([Lines(stream)], patience_seconds=0.05)
    group.say("autotune 0.1.0")

    deadline = time.monotonic() + 10.0
    while not stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    group.close()

    assert stream.getvalue() == "autotune 0.1.0\n"


def test_quiet_says_nothing_and_a_log_file_still_gets_all() -> None:
    stderr, log = io.StringIO(), io.StringIO()
    screen, _ = open_screen(stderr, quiet=True, verbose=False, log=log)
    _whole_study(screen)

    assert stderr.getvalue() == ""
    assert "a note" in log.getvalue()


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_gets_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setenv("TERM", term)
        without = can_draw(terminal)
        monkeypatch.setenv("TERM", "xterm")
        with_drawing = can_draw(terminal)
    os.close(leader)

    assert (without, with_drawing) == (False, True)


def test_progress_whose_reader_has_left_is_dropped_silently() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as broken:
        stream = ProgressStream(broken)
        _whole_study(Lines(stream))

        assert not stream.isatty()
        # Whatever is left in the file's own buffer must not fail again when it is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), broken.fileno())


def test_a_closed_terminal_ends_the_drawing_and_not_the_study() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        stream = ProgressStream(terminal)
        screen = LiveTable(stream)
        screen.trial_started(1, POINT, _progress(0))
        os.close(leader)
        stream.close()
        screen.trial_finished(1, POINT, GOOD, _progress(1, POINT))
        screen.close()

        assert stream.write("more") == 4


def test_a_stream_without_unicode_gets_a_replacement() -> None:
    raw = io.BytesIO()
    stream = ProgressStream(io.TextIOWrapper(raw, encoding="ascii"))
    stream.write("naïve\n")
    stream.flush()

    assert raw.getvalue() == b"na?ve\n"
