"""What the death of a trial means: the statuses are those of real processes that really died so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from trials.afterlife import Death, result_of_death
from trials.wire import ModelSpec, Outcome, Phase, Point, TrialSpec

BUDGET = 1 << 30


def status_after(number: int) -> int:
    """The exit status of a child that ends by a signal (above zero) or a code (zero or below)."""
    pid = os.fork()
    if pid == 0:
        if number > 0:
            signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
            os.kill(os.getpid(), number)
        os._exit(-number)
    return os.waitpid(pid, 0)[1]


def death(status: int, *, ended: str | None = None, data: int = 0, resident: int = 1 << 20) -> Death:
    return Death(
        exit_status=status,
        ended=ended,
        phase=Phase.START,
        data_bytes=data,
        resident_bytes=resident,
        seconds=3.0,
    )


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    return TrialSpec(
        trial_id="1",
        model=ModelSpec(name="m", config={}),
        point=Point(),
        seq_len=8,
        device="cpu",
        budget_bytes=BUDGET,
        host_budget_bytes=2 * BUDGET,
        log_path=str(tmp_path / "log"),
        work_dir=str(tmp_path),
    )


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_dying_near_the_limit_is_an_out_of_memory(spec: TrialSpec, number: int) -> None:
    result = result_of_death(spec, death(status_after(number), data=int(0.9 * BUDGET)))
    assert result.outcome is Outcome.OOM
    assert result.phase is Phase.START
    assert result.device_bytes == int(0.9 * BUDGET)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_dying_far_from_the_limit_is_a_crash(spec: TrialSpec, number: int) -> None:
    result = result_of_death(spec, death(status_after(number), data=BUDGET // 10))
    assert result.outcome is Outcome.CRASH
    assert signal.Signals(number).name in result.message


def test_openmp_that_finds_no_room_for_a_thread_ends_the_process_and_is_an_out_of_memory(
    spec: TrialSpec,
) -> None:
    words = "libgomp: Thread creation failed: Resource temporarily unavailable"
    Path(spec.log_path).write_text(f"ready\n\n{words}\n")
    assert result_of_death(spec, death(status_after(-1))).outcome is Outcome.OOM
    unlimited = spec.model_copy(update={"budget_bytes": None})
    assert result_of_death(unlimited, death(status_after(-1))).outcome is Outcome.CRASH


def test_dying_far_from_the_limit_with_bad_alloc_as_last_words_is_an_out_of_memory(spec: TrialSpec) -> None:
    Path(spec.log_path).write_text(
        "loading\nterminate called after throwing an instance of 'std::bad_alloc'\n"
    )
    # One large request can be refused while little is held.
    result = result_of_death(spec, death(status_after(signal.SIGABRT), data=BUDGET // 10))
    assert result.outcome is Outcome.OOM


def test_without_a_limit_or_on_a_gpu_a_segmentation_fault_is_a_crash(spec: TrialSpec) -> None:
    status = status_after(signal.SIGSEGV)
    for changed in ({"budget_bytes": None}, {"device": "cuda"}):
        result = result_of_death(spec.model_copy(update=changed), death(status, data=BUDGET))
        assert result.outcome is Outcome.CRASH


def test_a_sigkill_nobody_here_sent_is_the_systems_where_the_trial_held_most_of_the_memory(
    spec: TrialSpec,
) -> None:
    status = status_after(signal.SIGKILL)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert result_of_death(spec, death(status, resident=int(0.8 * physical))).outcome is Outcome.HOST_OOM
    assert result_of_death(spec, death(status)).outcome is Outcome.CRASH


@pytest.mark.parametrize(
    ("ended", "outcome", "words"),
    [
        ("timeout", Outcome.TIMEOUT, "still in phase start after 3 s"),
        ("host_oom", Outcome.HOST_OOM, "2.0 GiB are allowed"),
        ("stalled", Outcome.OOM, "memory limit"),
        ("killed", Outcome.CRASH, "from outside"),
        ("peer", Outcome.CRASH, "another process"),
    ],
)
def test_a_trial_that_was_ended_says_why(spec: TrialSpec, ended: str, outcome: Outcome, words: str) -> None:
    result = result_of_death(spec, death(status_after(signal.SIGKILL), ended=ended))
    assert result.outcome is outcome
    assert words in result.message


def test_leaving_without_a_result_is_a_crash_with_its_status(spec: TrialSpec) -> None:
    for code in (0, 3):
        result = result_of_death(spec, death(status_after(-code)))
        assert result.outcome is Outcome.CRASH
        assert f"status {code}" in result.message


def test_what_was_not_seen_is_not_told(spec: TrialSpec) -> None:
    status = status_after(signal.SIGKILL)
    assert result_of_death(spec, death(status, resident=0)).host_peak_bytes is None
    assert result_of_death(spec.model_copy(update={"device": "cuda"}), death(status)).device_bytes is None
