"""Puts together two traces: the engine's part of one and the model's part of another.

What the model allocates does not depend on DeepSpeed's settings (below ZeRO-3), and what DeepSpeed allocates
does not depend on the batch, checkpointing or fused kernels. They meet at markers: phases, and the
arrival of each gradient at its parameter. A few traces of either kind so serve every combination.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.prediction.events import Events


def spliced(engine: Events, model: Events) -> Events | None:
    """The engine's part of one trace with the model's part of the other; None where they do not match."""
    if engine.handed is None or model.handed is None or engine.origins is None or model.origins is None:
        return None
    ours, theirs = _meeting_points(engine), _meeting_points(model)
    if [text for _, text in ours] != [text for _, text in theirs] or not ours:
        return None
    handed_here, handed_there = engine.handed, model.handed
    for handed in (handed_here, handed_there):
        if (handed == 0).any() or len(np.unique(handed)) != len(handed):
            return None
    engine_mask = _part(engine, 0) | _frees_of(engine, handed_here)
    engine_mask[: ours[0][0]] = True
    model_mask = _part(model, 1) & ~_frees_of(model, handed_there) & (model.ids != 0)
    offset = int(engine.ids.max(initial=0))
    renamed = np.arange(int(model.ids.max(initial=0)) + 1, dtype=np.int32) + offset
    renamed[handed_there] = handed_here
    model_ids = np.where(model.ids < 0, -renamed[-model.ids], renamed[model.ids]).astype(np.int32)
    categories = list(engine.categories)
    for name in model.categories:
        if name not in categories:
            categories.append(name)
    kind_map = np.asarray([categories.index(name) for name in model.categories], dtype=np.int16)
    here, there = np.flatnonzero(engine_mask), np.flatnonzero(model_mask)
    # Events sort by their meeting point, the engine's first, each in its own order.
    segment_here = np.searchsorted([index for index, _ in ours], here, side="right")
    segment_there = np.searchsorted([index for index, _ in theirs], there, side="right")
    order = np.argsort(np.concatenate([segment_here * 2, segment_there * 2 + 1]), kind="stable")

    def merged(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        both: NDArray[Any] = np.concatenate([first[here], second[there]])
        return both[order]

    return replace(
        engine,
        ids=merged(engine.ids, model_ids),
        sizes=merged(engine.sizes, model.sizes),
        streams=merged(engine.streams, model.streams),
        kinds=merged(engine.kinds, kind_map[model.kinds]),
        origins=merged(engine.origins, model.origins),
        categories=tuple(categories),
    )


def _meeting_points(events: Events) -> list[tuple[int, str]]:
    """Markers from the first optimizer step on that both traces have."""
    found = [(index, text) for index, text in events.marks if text.startswith(("phase", "step", "grad"))]
    start = next((i for i, (_, text) in enumerate(found) if text == "step 0"), len(found))
    return found[start:]


def _part(events: Events, origin: int) -> NDArray[np.bool_]:
    """The events of blocks of this origin; markers belong to the engine."""
    assert events.origins is not None
    owner = events.origins.copy()
    freed = np.flatnonzero(events.ids < 0)
    owner[freed] = events.origins[events.births[-events.ids[freed]]]
    return np.equal(owner, origin)


def _frees_of(events: Events, handed: NDArray[np.int32]) -> NDArray[np.bool_]:
    mask = np.zeros(len(events.ids), dtype=np.bool_)
    deaths = events.deaths[handed]
    mask[deaths[deaths < len(events.ids)]] = True
    return mask
