"""What the controller asks of the pre-warmed process: JSON lines on standard input."""

from __future__ import annotations

import json
import os
import selectors
from typing import Any


class Requests:
    """Standard input, read as it comes; whoever waits for anything waits with the same selector.

    Args:
        selector: standard input is registered in it, with this object as its data.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.open = True
        self.pending: list[dict[str, Any]] = []
        self._selector = selector
        self._incoming = b""
        selector.register(0, selectors.EVENT_READ, self)

    def take(self) -> None:
        """Read what has arrived; the end of the input is the end of the controller."""
        chunk = os.read(0, 1 << 16)
        if not chunk:
            self.open = False
            self._selector.unregister(0)
            return
        *lines, self._incoming = (self._incoming + chunk).split(b"\n")
        self.pending += [json.loads(line) for line in lines if line]

    def is_end_wanted(self) -> bool:
        """Whether what runs now must end: it is to be killed, or nobody is there any more."""
        kills = [request for request in self.pending if request["request"] == "kill"]
        self.pending = [request for request in self.pending if request["request"] != "kill"]
        return bool(kills) or not self.open
