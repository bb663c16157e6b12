"""Gets the traces of points: from memory, disk, by extrapolation in the micro batch, or from a worker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import Any

from autotune.errors import AutotuneError
from autotune.prediction.cache import TraceCache
from autotune.prediction.events import Events, extrapolated
from autotune.prediction.hardware import Hardware
from autotune.prediction.worker import TraceWorker
from trials.wire import ModelSpec, Point

# More micro batches than three in a step repeat the middle one.
TRACED_ACCUMULATION = 3
KEPT_IN_MEMORY = 64
# bitsandbytes' fused 4-bit kernel is never taken above this many tokens, so that traces there are alike.
FUSED_4BIT_TOKENS = 1536


class Traces:
    """The traces of one model at one sequence length.

    Args:
        model: what is traced.
        seq_len: tokens per sequence.
        lora_targets: adapted modules; None for all linear layers except the head.
        processes: data-parallel processes.
        hardware: the GPU.
        cache: kept traces.
        gradient_clipping: largest gradient norm; 0 turns clipping off.
        workers: idle workers, shared by all traces of these processes.
        torch_adam: torch's AdamW where DeepSpeed would compile FusedAdam.
        load_whole: load a quantised base whole before quantising it, as the shared measurements did.
    """

    def __init__(
        self,
        model: ModelSpec,
        seq_len: int,
        lora_targets: Sequence[str] | None,
        processes: int,
        hardware: Hardware,
        cache: TraceCache,
        gradient_clipping: float,
        workers: WorkerPool,
        *,
        torch_adam: bool = False,
        load_whole: bool = False,
    ) -> None:
        self._fixed: dict[str, Any] = {
            "model": {"name": "model", "config": model.config, "weights": None},
            "seq_len": seq_len,
            "lora_targets": sorted(lora_targets) if lora_targets else None,
            "processes": processes,
            "capability": list(hardware.capability),
            "multiprocessors": hardware.multiprocessors,
            "gradient_clipping": gradient_clipping,
            "torch_adam": torch_adam,
            "load_whole": load_whole,
        }
        self._seq_len = seq_len
        self._cache = cache
        self._workers = workers
        self._memory: OrderedDict[Path, Events] = OrderedDict()
        self._failures: dict[Path, AutotuneError] = {}

    def exact(self, point: Point) -> Events:
        """The point's own trace.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        request = self._request(point)
        path = self._cache.path(request)
        if path in self._failures:
            raise self._failures[path]
        events = self._memory.get(path) or self._cache.read(path)
        if events is None:
            with self._workers.one() as worker:
                try:
                    worker.ask({**request, "id": 0, "path": str(path)})
                except AutotuneError as error:
                    self._failures[path] = error
                    raise
            events = Events.read(path)
        self._memory[path] = events
        self._memory.move_to_end(path)
        while len(self._memory) > KEPT_IN_MEMORY:
            self._memory.popitem(last=False)
        return events

    def quick(self, point: Point) -> tuple[Events, bool]:
        """The point's trace, extrapolated in the micro batch where possible; and whether it is its own."""
        base = self._bases(point)
        batch = point.micro_batch_size
        if base is None or batch in base:
            return self.exact(point), True
        low, high = base
        events = extrapolated(
            self.exact(point.model_copy(update={"micro_batch_size": low})),
            self.exact(point.model_copy(update={"micro_batch_size": high})),
            low,
            high,
            batch,
        )
        return (self.exact(point), True) if events is None else (events, False)

    def prepare(self, points: Iterable[Point]) -> None:
        """Make every trace that `quick` will need for these points, on all workers at once."""
        needed: dict[Path, Point] = {}
        for point in points:
            base = self._bases(point)
            batches = (point.micro_batch_size,) if base is None or point.micro_batch_size in base else base
            for batch in batches:
                wanted = point.model_copy(update={"micro_batch_size": batch})
                path = self._cache.path(self._request(wanted))
                if path not in self._memory and path not in self._failures and not path.exists():
                    needed.setdefault(path, wanted)
        if len(needed) < 2:
            return

        def make(point: Point) -> None:
            try:
                self.exact(point)
            except AutotuneError:
                # Told again, and to the right caller, when the point itself is asked for.
                return

        with ThreadPoolExecutor(self._workers.count) as pool:
            list(pool.map(make, needed.values()))

    def _bases(self, point: Point) -> tuple[int, int] | None:
        """The two micro batches a point is extrapolated from; None where it has to be traced itself."""
        batch = point.micro_batch_size
        low = 2
        if point.quantization == "nf4":
            low = max(2, FUSED_4BIT_TOKENS // self._seq_len + 1)
        # At one sequence some copies are no copies.
        return None if batch < low else (low, low + 1)

    def _request(self, point: Point) -> dict[str, Any]:
        accumulation = min(point.gradient_accumulation_steps, TRACED_ACCUMULATION)
        traced = point.model_copy(update={"gradient_accumulation_steps": accumulation})
        return {**self._fixed, "point": traced.model_dump(mode="json")}


class WorkerPool:
    """A few tracing processes, started when they are first used.

    Args:
        processes: data-parallel processes that traces pretend.
        count: tracing processes at most.
    """

    def __init__(self, processes: int, count: int) -> None:
        self.count = count
        self._workers = [TraceWorker(processes) for _ in range(count)]
        # Last in, first out: requests one after the other keep to one process.
        self._idle: LifoQueue[TraceWorker] = LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

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
