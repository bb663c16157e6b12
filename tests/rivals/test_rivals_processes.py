"""A contender at its time limit: real processes that really end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from benchmarks.rivals.processes import run_limited

# The child opens a session of its own, as trials and launchers do, and tells its number.
_WITH_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
_ANSWERS_WHEN_INTERRUPTED = """
import time
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("what I have so far")
"""


def test_nothing_is_left_running_after_the_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITH_A_CHILD]
    ended = run_limited(command, folder=tmp_path, environment=os.environ, limit_seconds=2.0)
    assert ended.cut
    assert 2.0 <= ended.wall_seconds < 3.0
    child = int(ended.stdout.read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_contender_may_say_what_it_has_found_by_its_limit(tmp_path: Path) -> None:
    # Isolated and without site it begins within a tenth of a second; on a busy machine within the limit.
    command = [sys.executable, "-I", "-S", "-c", _ANSWERS_WHEN_INTERRUPTED]
    ended = run_limited(command, folder=tmp_path, environment=os.environ, limit_seconds=3.0)
    assert ended.cut
    assert ended.stdout.read_text() == "what I have so far\n"


def test_one_that_ends_by_itself_is_not_cut_and_its_last_words_are_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('a\\nlast words\\n', file=sys.stderr); sys.exit(3)"]
    ended = run_limited(command, folder=tmp_path, environment=os.environ, limit_seconds=60.0)
    assert (ended.cut, ended.returncode, ended.last_words()) == (False, 3, "last words")
