"""One process that traces several engine settings of one model: it forks where they part.

Loading a model takes as long as the steps of one engine, so that it is loaded once; an engine is started once
for its one and its several micro batches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from trials.wire import Point


class Forks:
    """The points to trace, and which of them this process has turned to.

    Args:
        paths: where each point's trace is to be written; empty where nothing is shared.
    """

    def __init__(self, paths: Mapping[Point, str]) -> None:
        self.paths = dict(paths)
        self._forked = False

    @property
    def path(self) -> str | None:
        """Where this process writes; None where nothing is shared."""
        if not self.paths:
            return None
        (path,) = self.paths.values()
        return path

    def turn_to_engine(self, point: Point) -> Point:
        """Called with the model loaded: go on with one engine's points, and fork for the others."""
        groups: dict[Point, dict[Point, str]] = {}
        for one, path in self.paths.items():
            groups.setdefault(one.model_copy(update={"gradient_accumulation_steps": 1}), {})[one] = path
        self._divide(list(groups.values()))
        return next(iter(self.paths))

    def turn_to_accumulation(self, point: Point) -> Point:
        """Called with the engine started: go on with one point, and fork for the others."""
        self._divide([{one: path} for one, path in self.paths.items()])
        return next(iter(self.paths))

    def end(self, *, failed: bool = False) -> None:
        """Leave a process that was forked here; nothing happens in the first one."""
        if self._forked:
            os._exit(int(failed))

    def _divide(self, parts: list[dict[Point, str]]) -> None:
        for part in parts[:-1]:
            child = os.fork()
            if child == 0:
                self._forked = True
                self.paths = part
                return
            # One after the other: the number of processes is the caller's to decide.
            os.waitpid(child, 0)
        self.paths = parts[-1]
