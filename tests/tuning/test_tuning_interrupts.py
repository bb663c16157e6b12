"""Real signals to this process: when they end the search, and when they wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from autotune.tuning.interrupts import Interrupts


def _send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    # Python runs a handler between two instructions; this gives it some.
    for _ in range(1000):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_an_interrupt_where_it_arrives(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        assert not interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            _send(number)
        assert interrupts.requested
        assert interrupts.count == 1


def test_while_the_study_is_written_the_first_signal_waits() -> None:
    done = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.held():
            _send(signal.SIGINT)
            done.append("written")
        assert done == ["written"]
        # It was told once.
        with interrupts.held():
            pass


def test_the_second_signal_does_not_wait() -> None:
    done = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            _send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupts.held():
            _send(signal.SIGINT)
            done.append("written")
    assert done == []


def test_an_error_while_writing_is_not_hidden_by_a_signal() -> None:
    with Interrupts() as interrupts, pytest.raises(ValueError, match="disk"), interrupts.held():
        _send(signal.SIGINT)
        raise ValueError("disk")


def test_a_closed_terminal_is_told_and_ends_nothing() -> None:
    # Where the tests run under nohup it is ignored, and that is respected.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    told = []
    try:
        with Interrupts(on_hangup=lambda: told.append(1)) as interrupts:
            _send(signal.SIGHUP)
            assert not interrupts.requested
    finally:
        signal.signal(signal.SIGHUP, before)
    assert told == [1]


def test_the_former_handlers_come_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_the_third_signal_leaves_at_once_whatever_hangs() -> None:
    program = """
import os, signal, time
from autotune.tuning.interrupts import Interrupts
with Interrupts():
    for _ in range(3):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (130, "")
