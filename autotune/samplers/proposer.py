"""What a sampler is to the rest: something that names the next point to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotune.study.record import Record
from trials.wire import Point


class Proposer(Protocol):
    """Proposes points.

    A pure function of its seed, the history and the candidates: an interrupted search goes on as if it had
    not been interrupted.
    """

    def propose(self, history: Sequence[Record], candidates: Sequence[Point]) -> Point:
        """Names the next point to try.

        Args:
            history: the study's records so far, those still running included.
            candidates: what may be proposed; never empty, and already without points that were measured, are
                impossible, or would run out of memory.

        Returns:
            One of the candidates.
        """
        ...
