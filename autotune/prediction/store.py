"""Traces by request: from memory, from disk, or made by workers, several at once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from autotune.errors import AutotuneError
from autotune.prediction.cache import TraceCache
from autotune.prediction.errors import PredictionUnavailable, Refused
from autotune.prediction.events import Events
from autotune.prediction.pool import Workers
from trials.wire import Point

KEPT_IN_MEMORY = 256
# Engine settings that one process traces after loading the model once, at most and at least.
LARGEST_FAMILY = 12
SMALLEST_FAMILY = 4
# A whole model's trace takes as long as those of so many engines.
WHOLE_ENGINES = 8


@dataclass(frozen=True)
class Request:
    """A trace that is wanted.

    Attributes:
        point: the configuration.
        extra: what the worker is to do with it, beside its steps; see `trials.tracing.__main__`.
    """

    point: Point
    extra: dict[str, Any] = field(default_factory=dict)


class TraceStore:
    """The traces of one model.

    Args:
        fixed: what all requests share.
        cache: kept traces.
        workers: idle workers.
    """

    def __init__(self, fixed: dict[str, Any], cache: TraceCache, workers: Workers) -> None:
        self._fixed = fixed
        self._cache = cache
        self._workers = workers
        self._memory: OrderedDict[Path, Events] = OrderedDict()
        self._failures: dict[Path, AutotuneError] = {}
        self._refused: dict[tuple[object, ...], AutotuneError] = {}
        # `make` asks from several threads.
        self._lock = Lock()

    def get(self, request: Request) -> Events:
        """A trace, made if there is none.

        Raises:
            PredictionUnavailable: it cannot be traced.
        """
        path = self.path(request)
        with self._lock:
            events = self._memory.get(path)
        if events is None:
            events = self._cache.read(path)
        if events is None:
            if path not in self._failures:
                self._trace([request])
            if path in self._failures:
                raise self._failures[path]
            events = Events.read(path)
        with self._lock:
            self._memory[path] = events
            self._memory.move_to_end(path)
            while len(self._memory) > KEPT_IN_MEMORY:
                self._memory.popitem(last=False)
        return events

    def make(self, requests: Iterable[Request]) -> None:
        """Make those traces that are missing, on all workers at once; failures are told by `get`."""
        missing = {self.path(request): request for request in requests}
        wanted = [
            request
            for path, request in missing.items()
            if path not in self._memory and path not in self._failures and not path.exists()
        ]
        if not wanted:
            return
        # What takes longest is begun first.
        jobs = sorted(self._jobs(wanted), key=_engines, reverse=True)
        with ThreadPoolExecutor(self._workers.count) as pool:
            list(pool.map(self._trace, jobs))

    def path(self, request: Request) -> Path:
        """Where a trace is kept."""
        return self._cache.path({**self._message(request), **request.extra})

    def _message(self, request: Request) -> dict[str, Any]:
        return {**self._fixed, "point": request.point.model_dump(mode="json")}

    def _jobs(self, wanted: Sequence[Request]) -> list[list[Request]]:
        """Requests by process: engine settings of one loaded model together, everything else alone."""
        alone = [[request] for request in wanted if "arrivals" not in request.extra]
        families: dict[object, list[Request]] = {}
        for request in wanted:
            if "arrivals" in request.extra:
                point = request.point
                key = (point.lora_rank, point.quantization, point.precision, point.attention)
                arrivals = tuple(request.extra["arrivals"])
                families.setdefault((*key, point.zero_bucket_elements, arrivals), []).append(request)
        total = sum(map(len, families.values()))
        size = min(LARGEST_FAMILY, max(SMALLEST_FAMILY, math.ceil(total / (2 * self._workers.count))))
        for members in families.values():
            # The settings of one engine stay together, so that it is started once.
            members.sort(key=lambda one: (one.point.zero_stage, one.point.offload, one.point.optimizer))
            alone += [members[start : start + size] for start in range(0, len(members), size)]
        return alone

    def _trace(self, requests: Sequence[Request]) -> None:
        paths = {self.path(request): request for request in requests}
        first = requests[0]
        message = {**self._message(first), **first.extra, "id": 0, "path": str(self.path(first))}
        if "arrivals" in first.extra:
            message["variants"] = [
                {"point": request.point.model_dump(mode="json"), "path": str(path)}
                for path, request in paths.items()
            ]
            # What any of them needs is loaded before they part.
            message["point"]["zero_stage"] = max(request.point.zero_stage for request in requests)
        reason: AutotuneError = PredictionUnavailable("cannot be traced: the engine's part failed")
        refused = self._refused.get(_model_key(first))
        if refused is not None:
            self._failures.update(dict.fromkeys(paths, refused))
            return
        with self._workers.one() as worker:
            try:
                worker.ask(message)
            except Refused as error:
                reason = self._refused[_model_key(first)] = error
            except AutotuneError as error:
                reason = error
        for path in paths:
            if not path.exists():
                with suppress(KeyError):
                    del self._memory[path]
                self._failures[path] = reason


def _engines(job: Sequence[Request]) -> int:
    """How long a job takes, in engines."""
    return WHOLE_ENGINES if job[0].extra.keys().isdisjoint(("arrivals", "runs")) else len(job)


def _model_key(request: Request) -> tuple[object, ...]:
    """What the building of a request's model depends on; a copy of some layers may be refused by itself."""
    point, how = request.point, sorted(request.extra.keys() & {"layers", "arrivals"})
    model = (point.precision, point.quantization, point.attention, point.liger_kernel, point.lora_rank > 0)
    return (*how, *model, point.checkpoint_fraction > 0)
