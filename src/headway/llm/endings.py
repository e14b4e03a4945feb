"""Whether a streamed answer came to its proper end, seen from its last bytes.

Every chunk is only put on a list. From time to time the list is cut back to the last
kilobytes, so that the length of an answer does not matter. One thing must not be cut off:
how the line began that those last kilobytes belong to. The last event of some streams repeats the
whole answer in a line of megabytes, and only its beginning says that it is the last.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from headway.llm import last_words
from headway.llm.last_words import Remains

if TYPE_CHECKING:
    from headway.llm.last_words import Dialect

# So much of the end is looked at, and twice as much if that is a single line.
_KEPT = 16_384
# So much of a longer line's beginning is kept, and of what stands before it: its event's name.
_HEAD = 256
_CONTEXT = 512
_CUT_BACK_ABOVE = 262_144
_PIECE = 65_536
_HEADER = 2
# By which servers keep a connection alive while a model thinks, for as long as it may.
_COMMENTS = re.compile(rb"(?<=\n):[^\r\n]*\r?\n")
_BLANK_LINES = re.compile(rb"\n(?:\r?\n){2,}")

_DIALECTS: tuple[tuple[re.Pattern[str], Dialect], ...] = (
    (re.compile(r"/completions$"), last_words.chat),
    (re.compile(r"/responses(?:/[^/]+)?$"), last_words.responses),
    (re.compile(r"/messages$"), last_words.messages),
    (re.compile(r"/publishers/anthropic/models/[^/]+:streamRawPredict$"), last_words.messages),
    (re.compile(r"/publishers/mistralai/models/[^/]+:streamRawPredict$"), last_words.chat),
    (re.compile(r":streamGenerateContent$"), last_words.gemini),
)
_EVENTS = "text/event-stream"
_JSON = "application/json"


def watch(path: str, content_type: str, content_encoding: str) -> Ending | None:
    """Somebody to watch the answer to a request; ``None`` where its end cannot be known."""
    path = path.partition("?")[0]
    kind = content_type.partition(";")[0].strip().lower()
    dialect = next((each for pattern, each in _DIALECTS if pattern.search(path)), None)
    if dialect is None:
        return None
    if kind == _JSON and dialect is last_words.gemini:
        dialect = last_words.gemini_list
    elif kind != _EVENTS:
        return None
    encoding = content_encoding.strip().lower()
    if encoding in {"", "identity"}:
        return Ending(dialect)
    if encoding in {"gzip", "x-gzip"}:
        return _Unpacked(dialect, 16 + zlib.MAX_WBITS)
    if encoding == "deflate":
        return _Unpacked(dialect, zlib.MAX_WBITS)
    return None


class Ending:
    """Keeps the end of one stream; what it finds does not depend on how that came in chunks."""

    __slots__ = ("_dialect", "_head", "_is_from_start", "_parts", "_size", "_starts_with_head")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._parts: list[bytes] = []
        self._size = 0
        self._is_from_start = True  # the parts are all that came
        self._head = b""  # of a line whose middle is gone, and what stood before it
        self._starts_with_head = False

    def feed(self, chunk: bytes) -> None:
        """Take note of the next bytes."""
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size > _CUT_BACK_ABOVE and not self._drop_old_parts():
            self._cut_back(spare=_CONTEXT)

    @property
    def complete(self) -> bool:
        """Whether the stream told of its end. What cannot be known is not called cut off."""
        self._cut_back(spare=0)
        is_from_start = self._starts_with_head if self._head else self._is_from_start
        return self._dialect(Remains(self._head, self._parts[0], is_from_start=is_from_start))

    def _drop_old_parts(self) -> bool:
        """Keep only the newest chunks, if all that matters is in them, as it nearly always is."""
        count = size = 0
        while size < 2 * _KEPT and count < len(self._parts):
            count += 1
            size += len(self._parts[-count])
        recent = b"".join(self._parts[-count:])
        if size == self._size or _line_at(recent, size - _KEPT) < _CONTEXT or b"\n:" in recent:
            return False
        self._parts, self._size = [recent], size
        self._head, self._is_from_start = b"", False
        return True

    def _cut_back(self, *, spare: int) -> None:
        """Keep the end, from the beginning of a line on, or without the middle of a long one.

        While more may come, a little before the cut is spared: the head of a later line is
        kept with what stands before it.
        """
        text = b"".join(self._parts)
        if len(text) > _KEPT and b"\n:" in text:
            text = _BLANK_LINES.sub(b"\n\n", _COMMENTS.sub(b"", text))
        start, cut = 0, len(text) - _KEPT
        if cut > 0:
            line = _line_at(text, cut)
            if line < 0 and self._is_from_start:
                line = 0
            if line < 0:  # still in the line whose head we have
                start = cut - spare
            elif len(text) - line <= 2 * _KEPT:
                start, self._head = line - _CONTEXT, b""
            else:
                start, self._head = cut - spare, text[max(0, line - _CONTEXT) : line + _HEAD]
                self._starts_with_head = self._is_from_start and line <= _CONTEXT
        if start > 0:
            text, self._is_from_start = text[start:], False
        self._parts, self._size = [text], len(text)


class _Unpacked(Ending):
    """The same for a stream that comes compressed."""

    __slots__ = ("_is_broken", "_packed", "_unpack")

    def __init__(self, dialect: Dialect, window_bits: int) -> None:
        super().__init__(dialect)
        self._unpack = zlib.decompressobj(window_bits)
        self._is_broken = False
        # What is called "deflate" has a header or has none, which the first bytes tell.
        self._packed: bytes | None = b"" if window_bits == zlib.MAX_WBITS else None

    def feed(self, chunk: bytes) -> None:
        if self._is_broken:
            return
        if self._packed is not None:
            chunk = self._packed + chunk
            if len(chunk) < _HEADER:
                self._packed = chunk
                return
            if not _has_header(chunk):
                self._unpack = zlib.decompressobj(-zlib.MAX_WBITS)
            self._packed = None
        self._feed_unpacked(chunk)

    def _feed_unpacked(self, chunk: bytes) -> None:
        # In pieces: a few packed bytes may be very many.
        try:
            while chunk:
                super().feed(self._unpack.decompress(chunk, _PIECE))
                chunk = self._unpack.unconsumed_tail
        except zlib.error:
            self._is_broken = True

    @property
    def complete(self) -> bool:
        return self._is_broken or super().complete


def _has_header(packed: bytes) -> bool:
    """Whether this is how a zlib stream begins, by its method and its own check."""
    return int.from_bytes(packed[:_HEADER], "big") % 31 == 0 and packed[0] & 15 == zlib.DEFLATED


def _line_at(text: bytes, at: int) -> int:
    """Where the line begins that this place belongs to; -1 if before all of this."""
    line_feed = text.rfind(b"\n", 0, at)
    line_break = max(line_feed, text.rfind(b"\r", line_feed + 1, at))
    return line_break + 1 if line_break >= 0 else -1
