"""Stand-in."""

from __future__ import annotations

import re

_LAST = re.compile(rb"\[DONE\]|message_stop|response\.completed|finish_?[rR]eason\": \"")


class Ending:
    """Stand-in."""

    def __init__(self) -> None:
        self._seen = b""
        self.complete = False

    def feed(self, chunk: bytes) -> None:
        """More of the body."""
        self._seen += chunk
        self.complete = self.complete or bool(_LAST.search(self._seen))


def watch(path: str, content_type: str, content_encoding: str) -> Ending | None:
    """Stand-in."""
    del path, content_encoding
    return Ending() if content_type.startswith("text/event-stream") else None
