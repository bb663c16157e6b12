"""The exporters by name, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from autotune.errors import UsageError
from autotune.export import (
    accelerate,
    axolotl,
    deepspeed,
    llamafactory,
    peft,
    script,
    swift,
    transformers,
    trl,
)
from autotune.export.exporter import Exporter
from autotune.space.trainers import TITLES, losses
from trials.wire import Point

_ALL = (
    deepspeed.EXPORTER,
    transformers.EXPORTER,
    accelerate.EXPORTER,
    trl.EXPORTER,
    peft.EXPORTER,
    llamafactory.EXPORTER,
    axolotl.EXPORTER,
    swift.EXPORTER,
    script.EXPORTER,
)
EXPORTERS: Final[Mapping[str, Exporter]] = MappingProxyType({one.name: one for one in _ALL})
EVERY = "all"


def chosen_exporters(formats: Iterable[str], point: Point) -> tuple[Exporter, ...]:
    """The exporters asked for, each once and in the order asked for; `all` is every one that makes sense.

    Raises:
        UsageError: one that was asked for by name makes no sense for this point.
    """
    names = list(dict.fromkeys(formats))
    for name in names:
        if name != EVERY:
            reason = senseless(name, point)
            if reason is not None:
                raise UsageError(*reason)
    if EVERY in names:
        names = [name for name in EXPORTERS if senseless(name, point) is None]
    return tuple(EXPORTERS[name] for name in names)


def senseless(name: str, point: Point) -> tuple[str, str] | None:
    """Why there is nothing to export, and what to do; None where there is."""
    for loss in losses(name, point):
        if loss.limit.senseless:
            why = loss.limit.why.partition(":")[0]
            return (f"nothing to export for {TITLES[name]}: it {why}", "choose another format")
    return None
