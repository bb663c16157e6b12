"""From a space and a setting to the distinct points that can be tried, and why the others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

from autotune.errors import UsageError
from autotune.space.batch import SEARCHED_ACCUMULATION_STEPS, accumulation_steps
from autotune.space.conditions import ENGINE_RULES, SHAPE_FIELDS, SHAPE_RULES, first_broken
from autotune.space.fields import Value, point_fields, point_order
from autotune.space.setting import Setting
from autotune.space.space import Space
from trials.wire import Point

MOST_POINTS = 200_000


@dataclass(frozen=True)
class Enumeration:
    """What a space comes to in a setting.

    Attributes:
        points: the distinct possible points, in canonical order.
        lost: combinations of the space's values that are no points, counted by reason, most frequent first.
        notes: what was changed to make the space possible, one sentence each.
    """

    points: tuple[Point, ...]
    lost: Mapping[str, int]
    notes: tuple[str, ...] = ()


def enumerate_points(space: Space, setting: Setting) -> Enumeration:
    """Lists the distinct points of a space that can be tried.

    `gradient_accumulation_steps` follows from a fixed global batch; where the space lists it all the
    same, only those values remain that the global batch asks for. With a global batch of None the listed ones
    are searched, or 1, 2, 4, 8, 16, 32. Where the GPU has no bf16 and the space lists no fp16, fp16
    replaces it.

    Raises:
        UsageError: no point is possible (the message says why), or there are more than 200,000.
    """
    _refuse_too_many(space)
    values, notes = _substitute_fp16({name: space.of_field(name) for name in point_fields()}, setting)
    shapes = _possible_shapes(space, setting)
    engines = _possible_engines(values, setting)
    if len(engines.kept) * len(shapes.kept) > MOST_POINTS:
        raise _too_many(space)
    if not engines.kept or not shapes.kept:
        reason = (shapes if engines.kept else engines).nearest_miss()
        raise UsageError(f"no point of the space {space.name!r} is possible", reason)
    points = [Point(**engine, **shape) for engine in engines.kept for shape in shapes.kept]
    lost: Counter[str] = Counter()
    for reason, combinations in engines.lost.items():
        lost[reason] += combinations * shapes.combinations
    for reason, combinations in shapes.lost.items():
        lost[reason] += combinations * (len(engines.kept) + engines.merged)
    return Enumeration(
        tuple(sorted(points, key=point_order)), MappingProxyType(dict(lost.most_common())), notes
    )


def neutral_point(point: Point) -> Point:
    """The point with every field that does not matter in it at its neutral value.

    ZeRO's buckets exist from stage 1 on.
    """
    if point.zero_stage == 0 and point.zero_bucket_elements is not None:
        return point.model_copy(update={"zero_bucket_elements": None})
    return point


@dataclass
class _Part:
    """The engines or the shapes of a space: those that are possible, and the others by reason."""

    kept: list[dict[str, Any]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    merged: int = 0
    depth: dict[str, int] = field(default_factory=dict)

    @property
    def combinations(self) -> int:
        return len(self.kept) + self.merged + self.lost.total()

    def lose(self, position: int, reason: str) -> None:
        self.lost[reason] += 1
        self.depth[reason] = position

    def nearest_miss(self) -> str:
        """The reason that was met after the most rules were kept: mending it alone makes a point possible."""
        return max(self.depth, key=lambda reason: (self.depth[reason], self.lost[reason]))


def _refuse_too_many(space: Space) -> None:
    """Stops before the engines or the shapes alone are too many to look at."""
    engines = prod(len(space.of_field(name)) for name in point_fields() if name not in SHAPE_FIELDS)
    shapes = prod(len(space.of_field(name)) for name in SHAPE_FIELDS)
    if max(engines, shapes) > MOST_POINTS:
        raise _too_many(space)


def _too_many(space: Space) -> UsageError:
    return UsageError(f"the space {space.name!r} has over {MOST_POINTS:,} points", "list fewer values")


def _substitute_fp16(
    values: dict[str, tuple[Value, ...]], setting: Setting
) -> tuple[dict[str, tuple[Value, ...]], tuple[str, ...]]:
    capabilities, listed = setting.capabilities, values["precision"]
    if capabilities.bf16 or not capabilities.fp16 or capabilities.device != "cuda":
        return values, ()
    if "bf16" not in listed or "fp16" in listed:
        return values, ()
    substituted = tuple("fp16" if value == "bf16" else value for value in listed)
    return values | {"precision": substituted}, ("the GPU has no bf16: fp16 takes its place",)


def _possible_engines(values: Mapping[str, tuple[Value, ...]], setting: Setting) -> _Part:
    names = [name for name in values if name not in SHAPE_FIELDS]
    part = _Part()
    distinct: set[Point] = set()
    for combination in product(*(values[name] for name in names)):
        point = Point.model_validate(dict(zip(names, combination, strict=True)))
        broken = first_broken(ENGINE_RULES, point, setting)
        if broken:
            part.lose(*broken)
            continue
        point = neutral_point(point)
        if point in distinct:
            part.merged += 1
            continue
        distinct.add(point)
        part.kept.append(point.model_dump(include=set(names)))
    return part


def _possible_shapes(space: Space, setting: Setting) -> _Part:
    part = _Part()
    distinct: set[tuple[Value, ...]] = set()
    fractions = _distinct_fractions(space.of_field("checkpoint_fraction"), setting.num_layers)
    for shape in _shapes(space, setting):
        broken = first_broken(SHAPE_RULES, Point(**shape), setting)
        if broken:
            part.lose(*broken)
            continue
        shape["checkpoint_fraction"] = fractions[shape["checkpoint_fraction"]]
        if tuple(shape.values()) in distinct:
            part.merged += 1
            continue
        distinct.add(tuple(shape.values()))
        part.kept.append(shape)
    return part


def _shapes(space: Space, setting: Setting) -> Iterator[dict[str, Any]]:
    fractions = space.of_field("checkpoint_fraction")
    for micro_batch, fraction in product(space.of_field("micro_batch_size"), fractions):
        assert isinstance(micro_batch, int)
        accumulations: tuple[Value, ...] = SEARCHED_ACCUMULATION_STEPS
        if "gradient_accumulation_steps" in space.values:
            accumulations = space.values["gradient_accumulation_steps"]
        elif setting.global_batch is not None:
            accumulations = (accumulation_steps(setting.global_batch, micro_batch, setting.gpus),)
        for steps in accumulations:
            yield {
                "micro_batch_size": micro_batch,
                "gradient_accumulation_steps": steps,
                "checkpoint_fraction": fraction,
            }


def _distinct_fractions(listed: tuple[Value, ...], num_layers: int | None) -> dict[float, float]:
    """For each listed share the one that stands for it: shares that recompute equally many layers are one."""
    representative: dict[float, float] = {}
    by_layers: dict[int, float] = {}
    for fraction in listed:
        assert isinstance(fraction, float)
        if num_layers is None:
            representative[fraction] = fraction
            continue
        layers = round(fraction * num_layers)
        plain = 0.0 if layers == 0 else 1.0 if layers == num_layers else fraction
        representative[fraction] = by_layers.setdefault(layers, plain)
    return representative
