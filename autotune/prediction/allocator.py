"""A model of PyTorch's CUDA caching allocator: what a sequence of allocations and frees makes it reserve.

Written from the rules of `c10/cuda/CUDACachingAllocator.cpp` (torch 2.11 to 2.13) with its default
settings: sizes are rounded to 512 bytes; requests up to 1 MiB and larger ones have pools of their own; each
    CUDA stream has its own blocks; best fit by (size, address); neighbours merge when freed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

MIB: Final = 1 << 20
ROUND_BYTES: Final = 512
SMALL_BYTES: Final = MIB
SMALL_SEGMENT_BYTES: Final = 2 * MIB
LARGE_SEGMENT_BYTES: Final = 20 * MIB
MIN_LARGE_BYTES: Final = 10 * MIB
ROUND_LARGE_BYTES: Final = 2 * MIB
# Far more than any segment grows to; a whole number of pages of either size, as a segment's own base is.
_SEGMENT_SPAN: Final = LARGE_SEGMENT_BYTES << 22


class OutOfMemory(Exception):
    """The cap does not hold a request, even with everything free released.

    Attributes:
        requested_bytes: the request.
        event: index of the event that failed, set by the replay.
    """

    def __init__(self, requested_bytes: int) -> None:
        super().__init__(f"{requested_bytes} bytes do not fit")
        self.requested_bytes = requested_bytes
        self.event = -1


def round_size(size_bytes: int) -> int:
    """The block a request of this many bytes gets."""
    return max(ROUND_BYTES, (size_bytes + ROUND_BYTES - 1) // ROUND_BYTES * ROUND_BYTES)


def allocation_size(rounded_bytes: int) -> int:
    """What is asked from the driver for a rounded request that no cached block serves."""
    if rounded_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if rounded_bytes < MIN_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return (rounded_bytes + ROUND_LARGE_BYTES - 1) // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES


class _Block:
    __slots__ = ("address", "allocated", "mapped", "next", "pool", "prev", "size")

    def __init__(self, pool: _Pool, address: int, size: int, mapped: bool = True) -> None:
        self.pool = pool
        self.address = address
        self.size = size
        self.allocated = False
        self.mapped = mapped
        self.prev: _Block | None = None
        self.next: _Block | None = None


class _Pool:
    """The blocks of one stream and size class. `free` is sorted by (size, address), `unmapped` by address."""

    __slots__ = ("free", "is_small", "page_bytes", "unmapped")

    def __init__(self, is_small: bool) -> None:
        self.is_small = is_small
        self.page_bytes = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        self.free: list[tuple[int, int, _Block]] = []
        self.unmapped: list[tuple[int, _Block]] = []

    def add(self, block: _Block) -> None:
        insort(self.free, (block.size, block.address, block))

    def remove(self, block: _Block) -> None:
        index = bisect_left(self.free, (block.size, block.address))
        del self.free[index]

    def add_unmapped(self, block: _Block) -> None:
        insort(self.unmapped, (block.address, block))

    def remove_unmapped(self, block: _Block) -> None:
        index = bisect_left(self.unmapped, (block.address,))
        del self.unmapped[index]


class CachingAllocator:
    """One device's allocator.

    Args:
        expandable_segments: as `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
        cap_bytes: what `set_per_process_memory_fraction` allows to be reserved; None for no cap.

    Attributes:
        allocated_bytes: bytes in blocks that are in use, as `torch.cuda.memory_allocated`.
        reserved_bytes: bytes held from the driver, as `torch.cuda.memory_reserved`.
        peak_allocated_bytes: the largest `allocated_bytes` so far.
        peak_reserved_bytes: the largest `reserved_bytes` so far.
        retries: how often everything free had to be released for a request to fit.
    """

    def __init__(self, *, expandable_segments: bool = True, cap_bytes: int | None = None) -> None:
        self.expandable_segments = expandable_segments
        self.cap_bytes = cap_bytes
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self.retries = 0
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._next_address = _SEGMENT_SPAN

    def allocate(self, size_bytes: int, stream: int = 0) -> _Block:
        """A block for a request.

        Raises:
            OutOfMemory: nothing that could be released makes room under the cap.
        """
        size = size_bytes + 511 & ~511 or ROUND_BYTES
        key = (stream, size <= SMALL_BYTES)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(key[1])
        block = self._cached(pool, size)
        if block is None:
            block = self._from_driver(pool, size)
            if block is None:
                self.retries += 1
                self.release_cached()
                block = self._from_driver(pool, size)
                if block is None:
                    raise OutOfMemory(size)
        rest = block.size - size
        if rest >= ROUND_BYTES if (self.expandable_segments or pool.is_small) else rest > SMALL_BYTES:
            remaining = _Block(pool, block.address + size, rest)
            remaining.prev = block
            remaining.next = block.next
            if block.next is not None:
                block.next.prev = remaining
            block.next = remaining
            block.size = size
            insort(pool.free, (rest, remaining.address, remaining))
        block.allocated = True
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        return block

    def free(self, block: _Block) -> None:
        """Return a block to its pool."""
        self.allocated_bytes -= block.size
        block.allocated = False
        self._merge(block)
        block.pool.add(block)

    def release_cached(self) -> None:
        """`torch.cuda.empty_cache`: give back every whole segment, or page, that is free."""
        for pool in self._pools.values():
            if self.expandable_segments:
                for _, _, block in list(pool.free):
                    self._unmap(block)
            else:
                kept = []
                for entry in pool.free:
                    block = entry[2]
                    if block.prev is None and block.next is None:
                        self.reserved_bytes -= block.size
                    else:
                        kept.append(entry)
                pool.free = kept

    def _cached(self, pool: _Pool, size: int) -> _Block | None:
        free = pool.free
        index = bisect_left(free, (size,))
        if index == len(free):
            return None
        if self.expandable_segments:
            # A block before unmapped room counts as large as it can grow, so that others are taken first.
            room = _expandable_size(free[index][2])
            while index + 1 < len(free):
                following = _expandable_size(free[index + 1][2])
                if following >= room:
                    break
                index, room = index + 1, following
        block = free[index][2]
        del free[index]
        return block

    def _from_driver(self, pool: _Pool, size: int) -> _Block | None:
        asked = allocation_size(size)
        if self.cap_bytes is not None and self.reserved_bytes + asked > self.cap_bytes:
            return None
        if self.expandable_segments:
            return self._expand(pool, size)
        block = _Block(pool, self._next_address, asked)
        self._next_address += asked + _SEGMENT_SPAN
        self._reserve(asked)
        return block

    def _reserve(self, size: int) -> None:
        self.reserved_bytes += size
        if self.reserved_bytes > self.peak_reserved_bytes:
            self.peak_reserved_bytes = self.reserved_bytes

    def _expand(self, pool: _Pool, size: int) -> _Block | None:
        block = self._room(pool, size)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            assert following is not None
            if not self._map(following, min(size - block.size, following.size)):
                return None
            # Mapping merged what was before into the newly mapped block.
            block = following
        pool.remove(block)
        return block

    def _room(self, pool: _Pool, size: int) -> _Block:
        for _, unmapped in pool.unmapped:
            start = unmapped
            before = unmapped.prev
            if before is not None and not before.allocated:
                start = before
            found = 0
            walker: _Block | None = start
            while found < size and walker is not None and not walker.allocated:
                found += walker.size
                walker = walker.next
            if found >= size:
                return start
        segment = _Block(pool, self._next_address, _SEGMENT_SPAN // 2, mapped=False)
        self._next_address += _SEGMENT_SPAN
        pool.add_unmapped(segment)
        return segment

    def _map(self, block: _Block, size: int) -> bool:
        pool = block.pool
        page = pool.page_bytes
        mapped = (size + page - 1) // page * page
        if self.cap_bytes is not None and self.reserved_bytes + mapped > self.cap_bytes:
            # PyTorch checks the request, not the pages, against its cap; a GPU of that size refuses them.
            return False
        pool.remove_unmapped(block)
        block.mapped = True
        if mapped < block.size:
            rest = _Block(pool, block.address + mapped, block.size - mapped, mapped=False)
            rest.prev = block
            rest.next = block.next
            if block.next is not None:
                block.next.prev = rest
            block.next = rest
            block.size = mapped
            pool.add_unmapped(rest)
        self._merge(block)
        pool.add(block)
        self._reserve(mapped)
        return True

    def _unmap(self, block: _Block) -> None:
        pool = block.pool
        page = pool.page_bytes
        begin = (block.address + page - 1) // page * page
        end = (block.address + block.size) // page * page
        if begin >= end:
            return
        pool.remove(block)
        before = begin - block.address
        if before:
            head = _Block(pool, block.address, before)
            head.prev, head.next = block.prev, block
            if block.prev is not None:
                block.prev.next = head
            block.prev = head
            pool.add(head)
        after = block.address + block.size - end
        if after:
            tail = _Block(pool, end, after)
            tail.prev, tail.next = block, block.next
            if block.next is not None:
                block.next.prev = tail
            block.next = tail
            pool.add(tail)
        block.address, block.size, block.mapped = begin, end - begin, False
        self._merge(block)
        pool.add_unmapped(block)
        self.reserved_bytes -= end - begin

    def _merge(self, block: _Block) -> None:
        """Take free neighbours of the same kind (mapped or not) into this block, which is in no list."""
        pool = block.pool
        before = block.prev
        if before is not None and not before.allocated and before.mapped == block.mapped:
            pool.remove(before) if before.mapped else pool.remove_unmapped(before)
            block.address = before.address
            block.size += before.size
            block.prev = before.prev
            if before.prev is not None:
                before.prev.next = block
        after = block.next
        if after is not None and not after.allocated and after.mapped == block.mapped:
            pool.remove(after) if after.mapped else pool.remove_unmapped(after)
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.prev = block


def _expandable_size(block: _Block) -> int:
    following = block.next
    if following is not None and not following.mapped:
        return block.size + following.size
    return block.size
