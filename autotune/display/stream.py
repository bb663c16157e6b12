"""Progress goes to stderr, whose reader may leave at any time; the study goes on without it."""

from __future__ import annotations

from typing import TextIO


class ProgressStream:
    """A text stream that falls silent for good once it cannot be written any more.

    A terminal that was closed gives EIO, a pipe whose reader left gives EPIPE: neither may end a study.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._open = True

    @property
    def encoding(self) -> str:
        """The stream's encoding."""
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        """Write, if anybody still reads."""
        if self._open:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError):
                self._open = False
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody still reads."""
        if self._open:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._open = False

    def isatty(self) -> bool:
        """Whether it is a terminal that is still there."""
        return self._open and self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    def close(self) -> None:
        """Fall silent."""
        self._open = False
