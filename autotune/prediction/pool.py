"""A few tracing processes, and who has which."""

from __future__ import annotations

from queue import LifoQueue
from threading import Condition
from types import TracebackType
from typing import Protocol

from autotune.prediction.errors import WorkerDied
from autotune.prediction.worker import TraceWorker


class Workers(Protocol):
    """Tracing processes that can be had one at a time.

    Attributes:
        count: how many there are at most.
        processes: data-parallel processes that their traces pretend.
    """

    count: int
    processes: int

    def take(self) -> TraceWorker: ...
    def give(self, worker: TraceWorker) -> None: ...
    def one(self) -> Lease: ...
    def close(self) -> None: ...


class WorkerPool:
    """A few tracing processes, started when they are first used.

    Args:
        processes: data-parallel processes that traces pretend.
        count: tracing processes at most.
        niceness: how far they stand back behind other processes, such as a trial that is timed.
    """

    def __init__(self, processes: int, count: int, *, niceness: int = 0) -> None:
        self.count = count
        self.processes = processes
        self._workers = [TraceWorker(processes, niceness) for _ in range(count)]
        # Last in, first out: requests one after the other keep to one process.
        self._idle: LifoQueue[TraceWorker] = LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def start(self) -> None:
        """Start all processes, which load their libraries while nobody waits for them."""
        for worker in self._workers:
            worker.start()

    def one(self) -> Lease:
        """An idle worker, for a with statement."""
        return Lease(self)

    def take(self) -> TraceWorker:
        """Wait for an idle worker."""
        return self._idle.get()

    def give(self, worker: TraceWorker) -> None:
        """Return a worker."""
        self._idle.put(worker)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()


class PoolShare:
    """Some of a pool's processes, for a thread that works beside the pool's owner; the owner closes the pool.

    Args:
        pool: whose processes they are.
        limit: so many at a time at most.
    """

    def __init__(self, pool: WorkerPool, limit: int) -> None:
        self.count = pool.count
        self.processes = pool.processes
        self._pool = pool
        self._limit = limit
        self._busy: list[TraceWorker] = []
        self._waiting_for_one = 0
        self._ended = False
        self._changed = Condition()

    def limit(self, count: int) -> None:
        """From now on take so many at a time at most; what is being traced is not cut short."""
        with self._changed:
            self._limit = count
            self._changed.notify_all()

    def one(self) -> Lease:
        """An idle worker, for a with statement."""
        return Lease(self)

    def take(self) -> TraceWorker:
        """Wait for an idle worker.

        Raises:
            WorkerDied: the share has been closed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or len(self._busy) + self._waiting_for_one < self._limit
            )
            if self._ended:
                raise WorkerDied("the tracing processes have been ended")
            self._waiting_for_one += 1
        worker = self._pool.take()
        with self._changed:
            self._waiting_for_one -= 1
            self._busy.append(worker)
            if self._ended:
                worker.kill()
        return worker

    def give(self, worker: TraceWorker) -> None:
        """Return a worker."""
        with self._changed:
            self._busy.remove(worker)
            self._changed.notify_all()
        self._pool.give(worker)

    def close(self) -> None:
        """Cut short what is being traced, and let nobody have a process any more."""
        with self._changed:
            self._ended = True
            for worker in self._busy:
                worker.kill()
            self._changed.notify_all()


class Lease:
    """A worker for the time of a with statement."""

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self._worker: TraceWorker | None = None

    def __enter__(self) -> TraceWorker:
        self._worker = self._pool.take()
        return self._worker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._worker is not None
        if isinstance(error, KeyboardInterrupt):
            # Its answer is still to come and would be taken for another's.
            self._worker.close()
        self._pool.give(self._worker)
