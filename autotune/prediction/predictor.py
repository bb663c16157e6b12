"""Predicts the memory of configurations from traces of the trial's own code."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from autotune.errors import AutotuneError
from autotune.prediction.cache import TraceCache, default_cache_folder
from autotune.prediction.events import Events
from autotune.prediction.hardware import hardware_of
from autotune.prediction.pool import PoolShare, WorkerPool, Workers
from autotune.prediction.prediction import Prediction, PredictionFailure, prediction_of
from autotune.prediction.traces import Traces
from trials.wire import ModelSpec, Point

# A tracing process holds the libraries and one model's shapes: about a gigabyte.
MAX_WORKERS = 8


def worker_count() -> int:
    """How many tracing processes are useful on this machine."""
    return min(MAX_WORKERS, os.cpu_count() or 1)


class Predictor:
    """Predicts memory; a context manager, which ends the tracing processes it started.

    Args:
        gpu: name in the shipped table, or a compute capability such as "8.6"; None for the H200 the shipped
            figures were measured on.
        outside_allocator_bytes: what a process holds outside the allocator, measured; None for the shipped
            figure.
        cache_dir: where traces are kept; None for the user's cache folder.
        workers: tracing processes at most; None for one per processor, up to eight.
        gradient_clipping: largest gradient norm the trial clips to; 0 turns clipping off.
        torch_adam: torch's AdamW where DeepSpeed would compile FusedAdam, as `TrialSpec.torch_adam`.
        pool: tracing processes that run already; closed with this.

    Raises:
        UsageError: no such GPU.
    """

    def __init__(
        self,
        *,
        gpu: str | None = None,
        outside_allocator_bytes: int | None = None,
        cache_dir: Path | None = None,
        workers: int | None = None,
        gradient_clipping: float = 1.0,
        torch_adam: bool = False,
        pool: WorkerPool | None = None,
    ) -> None:
        self._hardware = hardware_of(gpu)
        self._outside_bytes = outside_allocator_bytes
        self._cache = TraceCache(cache_dir if cache_dir is not None else default_cache_folder())
        self._worker_count = workers or worker_count()
        self._gradient_clipping = gradient_clipping
        self._torch_adam = torch_adam
        self._pools: dict[int, Workers] = {} if pool is None else {pool.processes: pool}
        self._traces: dict[str, Traces] = {}

    def __enter__(self) -> Predictor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the tracing processes and bring the cache folder to its size."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        for traces in self._traces.values():
            traces.kept.save()
        self._cache.trim()

    def beside(self, processes: int, limit: int) -> tuple[Predictor, PoolShare]:
        """A predictor like this one for another thread, and its share of this one's tracing processes.

        Both keep their traces and predictions in the same place. It is closed before this one is.

        Args:
            processes: data-parallel processes (GPUs) of the points that it will predict.
            limit: so many tracing processes at most; see `PoolShare.limit`.
        """
        pool = self._pool(processes)
        assert isinstance(pool, WorkerPool), "a share is not shared again"
        share = PoolShare(pool, limit)
        other = copy.copy(self)
        other._pools = {processes: share}
        other._traces = {}
        return other, share

    def predict(
        self,
        model: ModelSpec,
        seq_len: int,
        point: Point,
        *,
        lora_targets: Sequence[str] | None = None,
        processes: int = 1,
        exact: bool = True,
    ) -> Prediction:
        """The memory of one configuration.

        Args:
            model: what is trained; its weights are not needed.
            seq_len: tokens per sequence.
            point: the configuration.
            lora_targets: adapted modules; None for all linear layers except the head.
            processes: data-parallel processes (GPUs); the figures are of one.
            exact: trace this very point and replay the allocator; otherwise the trace may be extrapolated
                from other micro batches (the same allocations) and the smallest budget is taken from what
                is allocated.

        Raises:
            PredictionUnavailable: it cannot be traced; the message says why.
        """
        traces = self._traces_of(model, seq_len, lora_targets, processes)
        known = traces.kept.get(point, exact=exact)
        if known is not None:
            return known
        figures, events = (None, traces.exact(point)) if exact else traces.quick(point)
        made = prediction_of(
            events,
            point,
            self._hardware,
            outside_bytes=self._outside_bytes,
            figures=figures,
            estimated=not exact and traces.is_estimated(point),
        )
        traces.kept.put(point, made, exact=exact)
        return made

    def events(
        self,
        model: ModelSpec,
        seq_len: int,
        point: Point,
        lora_targets: Sequence[str] | None = None,
        processes: int = 1,
    ) -> Events:
        """The point's own trace, for a closer look than a prediction gives.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        return self._traces_of(model, seq_len, lora_targets, processes).exact(point)

    def predict_many(
        self,
        model: ModelSpec,
        seq_len: int,
        points: Sequence[Point],
        *,
        lora_targets: Sequence[str] | None = None,
        processes: int = 1,
        exact: bool = False,
    ) -> Iterator[Prediction | PredictionFailure]:
        """The memory of many configurations of one model, in their order; a failure stands in its place."""
        traces = self._traces_of(model, seq_len, lora_targets, processes)
        new = [point for point in points if traces.kept.get(point, exact=exact) is None]
        if exact:
            traces.make(new)
        elif new:
            traces.prepare(new)
        for point in points:
            try:
                yield self.predict(
                    model, seq_len, point, lora_targets=lora_targets, processes=processes, exact=exact
                )
            except AutotuneError as error:
                yield PredictionFailure(error=error.message)

    @property
    def workers(self) -> int:
        """Tracing processes at most."""
        return self._worker_count

    def is_shared(
        self,
        model: ModelSpec,
        seq_len: int,
        point: Point,
        *,
        lora_targets: Sequence[str] | None = None,
        processes: int = 1,
    ) -> bool:
        """Whether a prediction that is not exact comes from traces that serve many points."""
        return self._traces_of(model, seq_len, lora_targets, processes).is_shared(point)

    def _traces_of(
        self, model: ModelSpec, seq_len: int, lora_targets: Sequence[str] | None, processes: int
    ) -> Traces:
        pool = self._pool(processes)
        key = json.dumps([model.config, seq_len, sorted(lora_targets or ()), processes], sort_keys=True)
        traces = self._traces.get(key)
        if traces is None:
            traces = self._traces[key] = Traces(
                model,
                seq_len,
                lora_targets,
                processes,
                self._hardware,
                self._cache,
                self._gradient_clipping,
                pool,
                torch_adam=self._torch_adam,
                outside_bytes=self._outside_bytes,
            )
        return traces

    def _pool(self, processes: int) -> Workers:
        if processes not in self._pools:
            self._pools[processes] = WorkerPool(processes, self._worker_count)
        return self._pools[processes]
