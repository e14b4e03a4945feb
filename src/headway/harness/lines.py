"""Lines out of a stream of bytes, none of them longer than what fits into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lines:
    """Cuts what comes in into lines; one that is too long is left out and counted."""

    def __init__(self, longest_bytes: int) -> None:
        self._longest = longest_bytes
        self._begun = bytearray()
        self._is_too_long = False
        self.left_out = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield from self.end()
        self._add(rest)

    def end(self) -> Iterator[bytes]:
        """The line that was begun, if there is one."""
        line, is_too_long = bytes(self._begun), self._is_too_long
        self._begun, self._is_too_long = bytearray(), False
        if is_too_long:
            self.left_out += 1
        elif line:
            yield line

    def _add(self, piece: bytes) -> None:
        if self._is_too_long or len(self._begun) + len(piece) > self._longest:
            self._begun, self._is_too_long = bytearray(), True
        else:
            self._begun += piece
