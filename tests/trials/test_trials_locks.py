"""Build locks that a dead process left behind are removed; those of the living are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from trials.ops import YOUNG_LOCK_SECONDS, remove_stale_locks


def lock_of(folder: Path, operator: str, age_seconds: float) -> Path:
    lock = folder / operator / "lock"
    lock.parent.mkdir()
    lock.touch()
    then = time.time() - age_seconds
    os.utime(lock, (then, then))
    return lock


def test_a_lock_nobody_holds_is_removed_and_everything_else_stays(tmp_path: Path) -> None:
    stale = lock_of(tmp_path, "cpu_adam", 60)
    young = lock_of(tmp_path, "fused_adam", YOUNG_LOCK_SECONDS / 5)
    built = stale.with_name("cpu_adam.so")
    built.touch()
    assert remove_stale_locks(tmp_path) == [stale]
    assert not stale.exists()
    assert young.exists() and built.exists()
    assert remove_stale_locks(tmp_path) == []


def test_a_lock_that_a_living_process_holds_is_left_until_it_dies(tmp_path: Path) -> None:
    lock = lock_of(tmp_path, "cpu_adam", 60)
    # torch's FileBaton keeps its lock open in this way.
    program = (
        f"import os, time; os.open({str(lock)!r}, os.O_RDONLY); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "held\n"
        assert remove_stale_locks(tmp_path) == []
        owner.kill()
        owner.wait()
    assert remove_stale_locks(tmp_path) == [lock]


def test_torch_really_holds_its_lock_open(tmp_path: Path) -> None:
    from torch.utils.file_baton import FileBaton

    lock = tmp_path / "operator" / "lock"
    lock.parent.mkdir()
    baton = FileBaton(str(lock))
    assert baton.try_acquire()
    os.utime(lock, (0, 0))
    assert remove_stale_locks(tmp_path) == []
    baton.release()


def test_a_folder_without_operators_has_no_locks(tmp_path: Path) -> None:
    assert remove_stale_locks(tmp_path) == []
    assert remove_stale_locks(tmp_path / "missing") == []
