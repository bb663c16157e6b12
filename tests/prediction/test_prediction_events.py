"""Peaks, breakdown and extrapolation of small traces written down by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.prediction.events import HOST_STREAM, PINNED_STREAM, ROUNDING, Events, extrapolated
from autotune.prediction.host import host_peak_bytes, pinned_block_bytes, process_bytes
from autotune.prediction.replay import fits, replay, smallest_cap
from trials.wire import Point

MIB = 1 << 20


def events_of(*steps: tuple[str, int, int] | tuple[str, int, int, int] | str) -> Events:
    """Events from ("new", id, bytes[, stream]), ("end", id, 0) and marker texts; the category is id % 2."""
    ids, sizes, streams, kinds, markers = [], [], [], [], []
    for step in steps:
        if isinstance(step, str):
            ids.append(0)
            sizes.append(len(markers))
            streams.append(0)
            kinds.append(0)
            markers.append(step)
        else:
            ids.append(step[1] if step[0] == "new" else -step[1])
            sizes.append(step[2] if step[0] == "new" else 0)
            streams.append(step[3] if len(step) == 4 else 0)
            kinds.append(step[1] % 2)
    return Events(
        ids=np.asarray(ids, dtype=np.int32),
        sizes=np.asarray(sizes, dtype=np.int64),
        streams=np.asarray(streams, dtype=np.int8),
        kinds=np.asarray(kinds, dtype=np.int16),
        markers=tuple(markers),
        categories=("even", "odd"),
        trainable_parameters=1,
        total_parameters=1,
    )


STEPS = events_of(
    "phase load",
    ("new", 1, 100 * MIB),
    "phase start",
    ("new", 2, 30 * MIB + 1),
    ("end", 2, 0),
    "step 0",
    "phase forward",
    ("new", 3, 40 * MIB),
    "phase backward",
    ("new", 4, 10 * MIB),
    ("end", 3, 0),
    "phase first_step",
    ("end", 4, 0),
    "step 1",
    "phase forward",
    ("new", 5, 60 * MIB),
    "phase later_step",
    ("end", 5, 0),
    "phase evaluation",
    ("new", 6, 500 * MIB),
)


def test_each_phase_has_its_peak() -> None:
    found = [(name, step, STEPS.peak_of(begin, end)[0]) for name, step, begin, end in STEPS.spans]
    assert found == [
        ("load", -1, 100 * MIB),
        ("start", -1, 130 * MIB + 512),
        ("forward", 0, 140 * MIB),
        ("backward", 0, 150 * MIB),
        # At its beginning it still holds what the backward pass left.
        ("first_step", 0, 110 * MIB),
        ("forward", 1, 160 * MIB),
        ("later_step", 1, 160 * MIB),
        ("evaluation", -1, 600 * MIB),
    ]


def test_breakdown_sums_to_what_is_allocated() -> None:
    peak, index = STEPS.peak_of(*STEPS.spans[1][2:])
    pieces = STEPS.breakdown_at(index)
    assert pieces == {"odd": 100 * MIB, "even": 30 * MIB + 1, ROUNDING: 511}
    assert sum(pieces.values()) == peak


def test_allocator_replay_agrees_with_the_sums() -> None:
    replayed = replay(STEPS)
    assert replayed.phase_peaks["start"] == 130 * MIB + 512
    assert replayed.step_peaks == (150 * MIB, 160 * MIB)
    assert replayed.peak_allocated_bytes == 600 * MIB


def test_training_leaves_evaluation_out() -> None:
    assert replay(STEPS.training).peak_allocated_bytes == 160 * MIB


def test_smallest_cap_works_and_a_page_less_does_not() -> None:
    training = STEPS.training
    cap = smallest_cap(training, replay(training).peak_reserved_bytes)
    assert cap >= 160 * MIB
    assert fits(training, cap)
    assert not fits(training, 159 * MIB)


def test_sizes_are_extrapolated_event_by_event() -> None:
    low = events_of("phase load", ("new", 1, 1000), ("new", 2, 64))
    high = events_of("phase load", ("new", 1, 1500), ("new", 2, 64))
    six = extrapolated(low, high, 2, 3, 6)
    assert six is not None
    assert six.sizes.tolist() == [0, 3000, 64]


def test_traces_of_other_events_are_not_extrapolated() -> None:
    low = events_of("phase load", ("new", 1, 1000))
    high = events_of("phase load", ("new", 1, 1500), ("new", 2, 64))
    assert extrapolated(low, high, 2, 3, 6) is None


@pytest.mark.parametrize(("asked", "block"), [(1, 1), (4096, 4096), (4097, 8192), (33 * MIB, 64 * MIB)])
def test_pinned_memory_is_taken_in_powers_of_two(asked: int, block: int) -> None:
    assert pinned_block_bytes(asked) == block


def test_freed_pinned_blocks_are_kept_and_used_again() -> None:
    events = events_of(
        "step 0",
        ("new", 1, 33 * MIB, PINNED_STREAM),
        ("end", 1, 0),
        ("new", 2, 50 * MIB, PINNED_STREAM),
        ("new", 3, 7 * MIB, HOST_STREAM),
        ("end", 3, 0),
        ("new", 4, 9 * MIB, HOST_STREAM),
    )
    point = Point()
    assert host_peak_bytes(events, point) == process_bytes(point) + 64 * MIB + 9 * MIB


def test_host_memory_is_not_device_memory() -> None:
    events = events_of("phase start", ("new", 1, 33 * MIB, PINNED_STREAM), ("new", 2, 7 * MIB, HOST_STREAM))
    assert int(events.allocated.max()) == 0
