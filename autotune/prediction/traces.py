"""Gets the traces of points: from memory, disk, by extrapolation in the micro batch, or from a worker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from types import TracebackType
from typing import Any

from autotune.errors import AutotuneError
from autotune.prediction.cache import TraceCache
from autotune.prediction.events import Events, extrapolated
from autotune.prediction.hardware import Hardware
from autotune.prediction.splicing import spliced
from autotune.prediction.worker import TraceWorker
from trials.wire import ModelSpec, Point

# More micro batches than three in a step repeat the middle one.
TRACED_ACCUMULATION = 3
QUICK_ACCUMULATION = 2
KEPT_IN_MEMORY = 256
# bitsandbytes' fused 4-bit kernel is never taken above this many tokens, so that traces there are alike.
FUSED_4BIT_TOKENS = 1536
TRACED_RANKS = (8, 16)


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
        # `prepare` asks from several threads.
        self._lock = Lock()

    def exact(self, point: Point) -> Events:
        """The point's own trace.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        request = self._request(point)
        path = self._cache.path(request)
        if path in self._failures:
            raise self._failures[path]
        with self._lock:
            events = self._memory.get(path)
        if events is None:
            events = self._cache.read(path)
        if events is None:
            with self._workers.one() as worker:
                try:
                    worker.ask({**request, "id": 0, "path": str(path)})
                except AutotuneError as error:
                    self._failures[path] = error
                    raise
            events = Events.read(path)
        with self._lock:
            self._memory[path] = events
            self._memory.move_to_end(path)
            while len(self._memory) > KEPT_IN_MEMORY:
                self._memory.popitem(last=False)
        return events

    def quick(self, point: Point) -> Events:
        """The point's trace, put together from other points' traces where that is possible.

        Below ZeRO-3 the engine's part and the model's part come from different traces; either is extrapolated
        in the micro batch and the rank.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        point = _coarse(point)
        donors = _donors(point, self._seq_len)
        if donors is not None:
            found = spliced(self._extrapolated(donors[0]), self._extrapolated(donors[1]))
            if found is not None:
                return found
        return self._extrapolated(point)

    def _extrapolated(self, point: Point) -> Events:
        low, high, name = _bases(point, self._seq_len)
        if name is None:
            return self.exact(point)
        found = extrapolated(
            self._extrapolated(point.model_copy(update={name: low})),
            self._extrapolated(point.model_copy(update={name: high})),
            low,
            high,
            getattr(point, name),
        )
        return self.exact(point) if found is None else found

    def prepare(self, points: Iterable[Point]) -> None:
        """Make every trace that `quick` will need for these points, on all workers at once."""
        needed: dict[Path, Point] = {}
        for point in points:
            point = _coarse(point)
            parts = _donors(point, self._seq_len) or (point,)
            for wanted in [need for part in parts for need in _needed(part, self._seq_len)]:
                path = self._cache.path(self._request(wanted))
                if path not in self._memory and path not in self._failures and not path.exists():
                    needed.setdefault(path, wanted)
        if len(needed) < 2:
            return

        def make(point: Point) -> None:
            # A failure is told again, and to the right caller, when the point itself is asked for.
            with suppress(AutotuneError):
                self.exact(point)

        with ThreadPoolExecutor(self._workers.count) as pool:
            list(pool.map(make, needed.values()))

    def _request(self, point: Point) -> dict[str, Any]:
        accumulation = min(point.gradient_accumulation_steps, TRACED_ACCUMULATION)
        # What is on NVMe instead of the host is on the device at no other time.
        offload = point.offload.removeprefix("nvme_")
        traced = point.model_copy(update={"gradient_accumulation_steps": accumulation, "offload": offload})
        return {**self._fixed, "point": traced.model_dump(mode="json")}


def _coarse(point: Point) -> Point:
    """The point with at most two micro batches in a step: a first and a last one, which hold the peaks."""
    accumulation = min(point.gradient_accumulation_steps, QUICK_ACCUMULATION)
    return point.model_copy(update={"gradient_accumulation_steps": accumulation})


def _donors(point: Point, seq_len: int) -> tuple[Point, Point] | None:
    """The points whose traces give the engine's and the model's part; None where it is traced itself."""
    if point.zero_stage == 3:
        # There DeepSpeed replaces the model's own linear function, and gathers in between.
        return None
    engine = point.model_copy(
        update={
            "micro_batch_size": _low_batch(point, seq_len),
            "checkpoint_fraction": 0.0,
            "liger_kernel": False,
        }
    )
    model = point.model_copy(update={"zero_stage": 0, "offload": "none", "optimizer": "adamw"})
    return None if point in (engine, model) else (engine, model)


def _low_batch(point: Point, seq_len: int) -> int:
    # bitsandbytes takes other kernels for few tokens.
    return max(2, FUSED_4BIT_TOKENS // seq_len + 1) if point.quantization == "nf4" else 2


def _bases(point: Point, seq_len: int) -> tuple[int, int, str | None]:
    """Two values of a field to extrapolate a point from, and the field; none if it is traced itself."""
    batch, rank = point.micro_batch_size, point.lora_rank
    low = _low_batch(point, seq_len)
    # At one sequence some copies are no copies.
    if batch > low + 1:
        return low, low + 1, "micro_batch_size"
    # ZeRO-3 keeps small parameters in another way, and so do 8-bit states: not affine in the rank.
    if rank and rank not in TRACED_RANKS and point.zero_stage < 3 and point.optimizer == "adamw":
        return *TRACED_RANKS, "lora_rank"
    return 0, 0, None


def _needed(point: Point, seq_len: int) -> list[Point]:
    low, high, name = _bases(point, seq_len)
    if name is None:
        return [point]
    return [
        found for value in (low, high) for found in _needed(point.model_copy(update={name: value}), seq_len)
    ]


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
