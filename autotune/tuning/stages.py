"""The order in which methods are tried: one stage, or LoRA and then QLoRA for `--method auto`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.tuning.request import Request
from trials.wire import Point

if TYPE_CHECKING:
    from autotune.space import Setting, Space
    from autotune.space.setting import RequestedMethod

AUTO_METHODS: tuple[RequestedMethod, ...] = ("lora", "qlora")


@dataclass(frozen=True)
class Stage:
    """The points of one method.

    Attributes:
        method: lora, qlora, full or any.
        space: where the points come from.
        points: distinct and possible here.
        lost: how many combinations each reason excluded.
        notes: what was changed to make the space possible.
    """

    method: RequestedMethod
    space: Space
    points: tuple[Point, ...] = ()
    lost: Mapping[str, int] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def words(self) -> str:
        """How many points there are, and what the most frequent reason took."""
        text = f"{self.method}: {len(self.points):,} distinct points of the space {self.space.name}"
        if self.lost:
            reason, count = max(self.lost.items(), key=lambda item: item[1])
            total = sum(self.lost.values())
            text += f"; {total:,} impossible combinations left out, {count:,} of them: {reason}"
        return text


def stages_of(request: Request) -> tuple[Stage, ...]:
    """The spaces to search, in order; their files are read and checked, and their points not listed yet.

    Raises:
        UsageError: an unknown or faulty space.
    """
    from autotune.space import load_space, space_for_method

    methods = AUTO_METHODS if request.method == "auto" else (request.method,)
    return tuple(Stage(method, load_space(request.space or space_for_method(method))) for method in methods)


def enumerate_stages(stages: Sequence[Stage], setting: Setting) -> tuple[Stage, ...]:
    """The stages with their points in this setting; a stage without any is left out.

    Raises:
        UsageError: no stage has a possible point.
    """
    filled, refusals = [], []
    for stage in stages:
        try:
            filled.append(_enumerate(stage, setting))
        except UsageError as error:
            refusals.append(error)
    if not filled:
        raise refusals[0]
    return tuple(filled)


def _enumerate(stage: Stage, setting: Setting) -> Stage:
    from autotune.space import enumerate_points

    found = enumerate_points(stage.space, dataclasses.replace(setting, method=stage.method))
    return dataclasses.replace(stage, points=found.points, lost=found.lost, notes=found.notes)
