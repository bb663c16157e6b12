"""One result of several processes: the outcome that explains most, and the memory of the fullest."""

from __future__ import annotations

from typing import Any

import pytest

from trials.afterlife import PEER_FAILED
from trials.merging import merge
from trials.wire import Outcome, Phase, TrialResult


def result(outcome: Outcome, **values: Any) -> TrialResult:
    return TrialResult(**{"trial_id": "1", "outcome": outcome, "phase": Phase.LATER_STEP, **values})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Outcome.OOM, Outcome.CRASH),
        (Outcome.INVALID, Outcome.CRASH),
        (Outcome.NAN, Outcome.CRASH),
        (Outcome.HOST_OOM, Outcome.CRASH),
        (Outcome.CRASH, Outcome.OK),
        (Outcome.OOM, Outcome.OK),
        (Outcome.TIMEOUT, Outcome.OK),
        (Outcome.STOPPED, Outcome.OK),
    ],
)
def test_the_process_that_explains_the_end_speaks_for_all(first: Outcome, second: Outcome) -> None:
    one, other = result(first, message="one"), result(second, message="other")
    assert merge([one, other]).message == "one"
    assert merge([other, one]).message == "one"


def test_the_reason_counts_more_than_that_a_peer_died() -> None:
    waiting, reason = (
        result(Outcome.CRASH, message=PEER_FAILED),
        result(Outcome.CRASH, message="died of SIGILL"),
    )
    assert merge([waiting, reason]).message == merge([reason, waiting]).message == "died of SIGILL"


def test_device_memory_is_the_largest_and_host_memory_the_sum() -> None:
    merged = merge(
        [
            result(
                Outcome.OK,
                peak_allocated_bytes=5,
                device_bytes=9,
                required_device_bytes=6,
                host_peak_bytes=100,
            ),
            result(
                Outcome.OK,
                peak_allocated_bytes=7,
                device_bytes=8,
                required_device_bytes=8,
                host_peak_bytes=50,
            ),
        ]
    )
    assert (merged.peak_allocated_bytes, merged.device_bytes, merged.required_device_bytes) == (7, 9, 8)
    assert merged.host_peak_bytes == 150


def test_what_one_process_did_not_reach_does_not_hide_the_others() -> None:
    merged = merge([result(Outcome.OOM, setup_peak_allocated_bytes=4), result(Outcome.CRASH)])
    assert merged.setup_peak_allocated_bytes == 4
    assert merged.peak_allocated_bytes is None
    assert merged.host_peak_bytes is None


def test_a_claim_is_verified_only_where_every_process_verified_it() -> None:
    verified, not_verified = (result(Outcome.OK, required_verified=value) for value in (True, False))
    assert merge([verified, verified]).required_verified
    assert not merge([verified, not_verified]).required_verified
    assert not merge([not_verified, verified]).required_verified


def test_one_result_is_itself() -> None:
    one = result(Outcome.OK, tokens_per_second=3.5, losses=(1.0,), host_peak_bytes=7)
    assert merge([one]) == one
