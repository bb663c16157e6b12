"""A few tracing processes, and who has which."""

from __future__ import annotations

from queue import LifoQueue
from types import TracebackType

from autotune.prediction.worker import TraceWorker


class WorkerPool:
    """A few tracing processes, started when they are first used.

    Args:
        processes: data-parallel processes that traces pretend.
        count: tracing processes at most.
    """

    def __init__(self, processes: int, count: int) -> None:
        self.count = count
        self.processes = processes
        self._workers = [TraceWorker(processes) for _ in range(count)]
        # Last in, first out: requests one after the other keep to one process.
        self._idle: LifoQueue[TraceWorker] = LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def start(self) -> None:
        """Start all processes, which load their libraries while nobody waits for them."""
        for worker in self._workers:
            worker.start()

    def one(self) -> _Lease:
        """An idle worker, for a with statement."""
        return _Lease(self)

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


class _Lease:
    def __init__(self, pool: WorkerPool) -> None:
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
