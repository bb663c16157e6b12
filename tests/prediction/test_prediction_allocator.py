"""The allocator model against scenarios worked out by hand from the documented rules."""

from __future__ import annotations

import pytest

from autotune.prediction.allocator import CachingAllocator, OutOfMemory, allocation_size, round_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("asked", "block"), [(1, 512), (512, 512), (513, 1024), (3 * MIB + 1, 3 * MIB + 512)]
)
def test_requests_are_rounded_to_512_bytes(asked: int, block: int) -> None:
    assert round_size(asked) == block


@pytest.mark.parametrize(
    ("block", "from_driver"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
    ],
)
def test_driver_is_asked_for_segments_by_size(block: int, from_driver: int) -> None:
    assert allocation_size(block) == from_driver


def test_small_requests_share_a_small_segment() -> None:
    allocator = CachingAllocator(expandable_segments=False)
    allocator.allocate(4)
    allocator.allocate(MIB)
    assert allocator.allocated_bytes == 512 + MIB
    assert allocator.reserved_bytes == 2 * MIB
    # 1 MiB less 512 bytes are left in the segment: another MiB needs a second one.
    allocator.allocate(MIB)
    assert allocator.reserved_bytes == 4 * MIB


def test_a_tail_of_up_to_a_mebibyte_stays_with_its_large_block() -> None:
    allocator = CachingAllocator(expandable_segments=False)
    allocator.allocate(11 * MIB)
    assert allocator.allocated_bytes == 12 * MIB
    allocator.allocate(11 * MIB - 512)
    # The tail is 1 MiB and 512 bytes here: it is split off.
    assert allocator.allocated_bytes == 12 * MIB + 11 * MIB - 512
    assert allocator.reserved_bytes == 24 * MIB


def test_expandable_segments_split_every_tail() -> None:
    allocator = CachingAllocator(expandable_segments=True)
    allocator.allocate(11 * MIB)
    assert allocator.allocated_bytes == 11 * MIB
    assert allocator.reserved_bytes == 20 * MIB


def test_freed_neighbours_merge_and_serve_a_larger_request() -> None:
    allocator = CachingAllocator(expandable_segments=False)
    first, second = allocator.allocate(8 * MIB), allocator.allocate(8 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.free(first)
    allocator.free(second)
    allocator.allocate(19 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_best_fit_takes_the_smallest_block_that_is_large_enough() -> None:
    allocator = CachingAllocator(expandable_segments=False)
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    allocator.allocate(30 * MIB)
    allocator.allocate(40 * MIB)
    assert allocator.reserved_bytes == 70 * MIB


def test_streams_do_not_share_blocks() -> None:
    allocator = CachingAllocator(expandable_segments=False)
    allocator.free(allocator.allocate(30 * MIB, stream=0))
    allocator.allocate(30 * MIB, stream=1)
    assert allocator.reserved_bytes == 60 * MIB


@pytest.mark.parametrize("expandable", [False, True])
def test_under_a_cap_everything_free_is_released_before_a_request_fails(expandable: bool) -> None:
    allocator = CachingAllocator(expandable_segments=expandable, cap_bytes=60 * MIB)
    allocator.free(allocator.allocate(40 * MIB, stream=1))
    allocator.allocate(40 * MIB)
    assert allocator.retries == 1
    assert allocator.reserved_bytes == 40 * MIB
    with pytest.raises(OutOfMemory) as failure:
        allocator.allocate(30 * MIB)
    assert failure.value.requested_bytes == 30 * MIB


def test_pages_that_are_partly_used_are_not_unmapped() -> None:
    allocator = CachingAllocator(expandable_segments=True)
    kept, freed = allocator.allocate(10 * MIB), allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 40 * MIB
    allocator.free(freed)
    allocator.release_cached()
    # 10 of the first page's 20 MiB are in use; the second page is wholly free.
    assert allocator.reserved_bytes == 20 * MIB
    allocator.free(kept)
    allocator.release_cached()
    assert allocator.reserved_bytes == 0


def test_unmapped_room_is_filled_before_a_segment_grows() -> None:
    allocator = CachingAllocator(expandable_segments=True)
    first, last = allocator.allocate(40 * MIB), allocator.allocate(20 * MIB)
    allocator.free(first)
    allocator.release_cached()
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 40 * MIB
    allocator.free(last)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_peaks_remember_what_was_freed() -> None:
    allocator = CachingAllocator(expandable_segments=True)
    allocator.free(allocator.allocate(100 * MIB))
    assert allocator.allocated_bytes == 0
    assert allocator.peak_allocated_bytes == 100 * MIB
    assert allocator.peak_reserved_bytes == 100 * MIB
