"""Which traces a set of points needs when they are put together from parts, and the figures that follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autotune.errors import AutotuneError, UsageError
from autotune.models import model_limits
from autotune.prediction.composing import Between, EnginePart, Setup, composed
from autotune.prediction.events import Events, extrapolated
from autotune.prediction.figures import Figures
from autotune.prediction.model_part import ModelPart
from autotune.prediction.segments import COPIED_LAYERS, SHAPES, LayerTraces, NotAlike
from autotune.prediction.store import Request, TraceStore
from trials.wire import ModelSpec, Point

# bitsandbytes' fused 4-bit kernel is never taken above this many tokens, so that traces there are alike.
FUSED_4BIT_TOKENS = 1536
# Ranks are affine; so many are traced where more are asked for.
TRACED_RANKS = 2
# bitsandbytes keeps the state of smaller tensors in 32 bits, that of others in blocks of so many elements.
EIGHT_BIT_ELEMENTS = 4096
EIGHT_BIT_BLOCK = 256
_ADAPTER = re.compile(r"lora_[^ ]*\((\d+), (\d+)\)")
# A step's first and last micro batch hold the peaks; those between repeat.
ACCUMULATION = 2


@dataclass(frozen=True)
class _Kind:
    """What a model's own operations depend on, beside the batch, the rank and checkpointing."""

    point: Point
    adapted: bool


class Composition:
    """The points of one model that are put together from parts.

    Args:
        model: what is trained.
        seq_len: tokens per sequence.
        processes: data-parallel processes.
        store: makes and keeps traces.
    """

    def __init__(self, model: ModelSpec, seq_len: int, processes: int, store: TraceStore) -> None:
        self._seq_len = seq_len
        self._processes = processes
        self._store = store
        self._layers = _layers_of(model)
        self._ranks: dict[_Kind, set[int]] = {}
        self._batches: dict[_Kind, set[int]] = {}
        self._models: dict[_Kind, ModelPart | None] = {}
        self._between: dict[tuple[Any, ...], Between] = {}
        self._engines: dict[Point, EnginePart] = {}
        self._arrivals: dict[tuple[bool, bool], list[str]] = {}
        self._unlike: dict[_Kind, str] = {}

    def covers(self, point: Point) -> bool:
        """Whether a point may be put together: nothing of it is gathered or fetched while it runs."""
        if self._layers < COPIED_LAYERS or point.quantization == "int8":
            return False
        if point.zero_stage == 3:
            return self._processes == 1 and not point.offload.endswith("parameters")
        return _kind(point) not in self._unlike

    def lowest_rank(self, point: Point) -> int:
        """The lowest rank asked for of a point's kind; its own where it is the first."""
        return min(self._ranks.get(_kind(point), ()), default=point.lora_rank)

    def expect(self, points: Iterable[Point]) -> list[Point]:
        """Say which points are asked for; those of them that may be put together."""
        points = [point for point in points if self.covers(point)]
        for point in points:
            kind = _kind(point)
            self._ranks.setdefault(kind, set()).add(point.lora_rank)
            self._batches.setdefault(kind, set()).add(point.micro_batch_size)
            self._models.pop(kind, None)
        return points

    def prepare(self, points: Iterable[Point], beside: Sequence[Request] = ()) -> None:
        """Make every trace that these points need, on all workers at once.

        Args:
            points: of which figures are wanted.
            beside: other traces that are wanted, made while there is work for fewer than all workers.
        """
        points = self.expect(points)
        self._store.make([request for kind in self._ranks for request in self._model_requests(kind)])
        many = [one for point in points if self._model(_kind(point)) for one in _engine_points(point)]
        wanted = list(dict.fromkeys(many))
        traced = dict.fromkeys(one for point in wanted for one in self._traced_at(point))
        self._store.make([*(self._engine_request(one) for one in traced), *beside])
        # Where ranks turn out not to be affine, each has a trace of its own.
        self._store.make([self._engine_request(one) for one in wanted if self._is_alone(one)])

    def figures(self, point: Point) -> tuple[Figures, Events]:
        """The peaks of a point, and its engine's part.

        Raises:
            NotAlike: it cannot be put together.
            AutotuneError: a part cannot be traced.
        """
        kind = _kind(point)
        if point.lora_rank not in self._ranks.get(kind, ()) or (
            point.micro_batch_size not in self._batches.get(kind, ())
        ):
            self.prepare([point])
        model = self._model(kind)
        if model is None:
            raise NotAlike(self._unlike.get(kind, "its layers are not alike"))
        key = (kind, point.micro_batch_size, point.lora_rank)
        whole = (*key, point.checkpoint_fraction)
        if whole not in self._between:
            recomputed = round(point.checkpoint_fraction * self._layers)
            stream = model.stream(point.micro_batch_size, point.lora_rank, recomputed, self._layers)
            self._between[whole] = Between.of(stream, model.categories)
        if key not in self._between:
            stream = model.evaluation(point.micro_batch_size, point.lora_rank, self._layers)
            self._between[key] = Between.of(stream, model.categories)
        engine = self._engine(_engine_point(point))
        if len(set(engine.events.layers)) != 1 or len(engine.events.layers) != self._layers:
            raise NotAlike("the model's layers differ")
        setup = None
        if point.quantization != "none":
            setup = Setup(self._engine(_setup_point(point)), whole=point.zero_stage == 3)
        return composed(engine, self._between[whole], self._between[key], setup), engine.events

    def _model(self, kind: _Kind) -> ModelPart | None:
        if kind not in self._models:
            try:
                self._models[kind] = self._read_model(kind)
            except (AutotuneError, NotAlike) as error:
                self._models[kind] = None
                self._unlike[kind] = str(error)
        return self._models[kind]

    def _read_model(self, kind: _Kind) -> ModelPart:
        runs, evaluations = self._runs(kind)
        traces = {
            request.point.lora_rank: LayerTraces(self._store.get(request), runs, evaluations)
            for request in self._model_requests(kind)
        }
        low = self._low_batch(kind.point)
        return ModelPart(traces, (low, low + 1))

    def _model_requests(self, kind: _Kind) -> Iterator[Request]:
        runs, evaluations = self._runs(kind)
        for rank in sorted(self._ranks[kind])[:TRACED_RANKS]:
            yield Request(
                kind.point.model_copy(update={"lora_rank": rank}),
                {"layers": COPIED_LAYERS, "runs": runs, "evaluations": evaluations},
            )

    def _runs(self, kind: _Kind) -> tuple[list[tuple[int, int]], list[int]]:
        low = self._low_batch(kind.point)
        asked = self._batches[kind]
        own = sorted({1, low, low + 1, *(batch for batch in asked if batch < low)} - {0})
        runs = [(low, 0), *((batch, 0) for batch in own if batch != low)]
        more = sorted(asked - set(own)) if kind.point.liger_kernel else []
        # liger-kernel's loss works in chunks whose number is not affine.
        runs += [(batch, 0) for batch in more]
        # Checkpointing, once on, leaves its traces in a model: what is without it comes first.
        runs += [(batch, shape) for shape in SHAPES[1:] for batch in own]
        return runs, [*own, *more]

    def _low_batch(self, point: Point) -> int:
        # bitsandbytes takes other kernels for few tokens; at one sequence some copies are no copies.
        return max(2, FUSED_4BIT_TOKENS // self._seq_len + 1) if point.quantization == "nf4" else 2

    def _traced_at(self, wanted: Point) -> Sequence[Point]:
        """The points whose traces give the engine's part of a point: itself, or itself at two other ranks."""
        ranks = sorted({rank for kind, ranks in self._ranks.items() if kind.adapted for rank in ranks})
        low = ranks[:TRACED_RANKS]
        if wanted.lora_rank == 0 or wanted.lora_rank in low:
            return [wanted]
        if wanted.optimizer != "adamw" and not self._has_whole_blocks(low[0]):
            return [wanted]
        return [wanted.model_copy(update={"lora_rank": rank}) for rank in low]

    def _has_whole_blocks(self, rank: int) -> bool:
        """Whether 8-bit states are affine in the rank: all are kept in whole blocks, none in 32 bits."""
        for kind in self._ranks:
            if kind.adapted and self._model(kind) is not None:
                request = next(one for one in self._model_requests(kind))
                layers = self._store.get(request).layers
                sizes = [
                    int(rows) * int(columns) * rank // request.point.lora_rank
                    for rows, columns in _ADAPTER.findall(layers[0])
                ]
                return all(size >= EIGHT_BIT_ELEMENTS and size % EIGHT_BIT_BLOCK == 0 for size in sizes)
        return False

    def _is_alone(self, wanted: Point) -> bool:
        traced = self._traced_at(wanted)
        if len(traced) < TRACED_RANKS:
            return False
        try:
            return self._at_rank(wanted, traced) is None
        except AutotuneError:
            return False

    def _at_rank(self, wanted: Point, traced: Sequence[Point]) -> Events | None:
        low, high = (self._store.get(self._engine_request(point)) for point in traced)
        return extrapolated(low, high, traced[0].lora_rank, traced[1].lora_rank, wanted.lora_rank)

    def _engine(self, wanted: Point) -> EnginePart:
        if wanted not in self._engines:
            traced = self._traced_at(wanted)
            events = self._at_rank(wanted, traced) if len(traced) == TRACED_RANKS else None
            if events is None:
                events = self._store.get(self._engine_request(wanted))
            self._engines[wanted] = EnginePart(events)
        return self._engines[wanted]

    def _engine_request(self, wanted: Point) -> Request:
        arrivals = [] if wanted.quantization != "none" else self._order(wanted)
        return Request(wanted, {"arrivals": arrivals})

    def _order(self, wanted: Point) -> list[str]:
        """Names of parameters in the order in which their gradients arrive.

        ZeRO-3 replaces the model's linear function, and with it that order.
        """
        key = (wanted.lora_rank > 0, wanted.zero_stage == 3)
        if key not in self._arrivals:
            for kind in self._ranks:
                alike = (kind.adapted, kind.point.zero_stage == 3) == key
                model = self._model(kind) if alike else None
                if model is not None:
                    self._arrivals[key] = list(model.arrivals(self._layers))
                    break
        return self._arrivals[key]


def _layers_of(model: ModelSpec) -> int:
    try:
        return model_limits(model).num_layers
    except UsageError:
        # A trace says better what is wrong with the configuration.
        return 0


@lru_cache(maxsize=1 << 14)
def _kind(point: Point) -> _Kind:
    neutral = Point(
        precision=point.precision,
        quantization=point.quantization,
        attention=point.attention,
        liger_kernel=point.liger_kernel,
        # ZeRO-3 replaces the model's linear function.
        zero_stage=3 if point.zero_stage == 3 else 0,
        zero_bucket_elements=point.zero_bucket_elements,
    )
    return _Kind(neutral, point.lora_rank > 0)


def _engine_points(point: Point) -> list[Point]:
    """The points of which a point's engine and, over a quantised base, its setup are traced."""
    return [_engine_point(point), *([_setup_point(point)] if point.quantization != "none" else [])]


@lru_cache(maxsize=1 << 14)
def _engine_point(point: Point) -> Point:
    return point.model_copy(
        update={
            "micro_batch_size": 1,
            "gradient_accumulation_steps": min(point.gradient_accumulation_steps, ACCUMULATION),
            "checkpoint_fraction": 0.0,
            "quantization": "none",
            "liger_kernel": False,
            "offload": point.offload.removeprefix("nvme_"),
        }
    )


@lru_cache(maxsize=1 << 14)
def _setup_point(point: Point) -> Point:
    engine = _engine_point(point)
    plain = {"zero_stage": 0, "offload": "none", "optimizer": "adamw"} if point.zero_stage < 3 else {}
    return engine.model_copy(
        update={"quantization": point.quantization, "gradient_accumulation_steps": 1, **plain}
    )
