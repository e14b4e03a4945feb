"""Heads of HTTP messages: what stands before a body, as it came and as it goes on.

Names, values and their order stay as they are; only what speaks of one connection and not of
the message is left out.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    Headers = list[tuple[bytes, bytes]]

# Of the connection, not of the message.
_OF_THE_CONNECTION = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
_SWITCHING = 101
_WITHOUT_BODY = (204, 304)
_INFORMATIONAL = range(100, 200)


class Head:
    """The headers of a request or an answer."""

    __slots__ = ("_known", "lines")

    def __init__(self) -> None:
        self.lines: Headers = []
        self._known: dict[bytes, bytes] | None = None

    @property
    def headers(self) -> Self:
        """Where those look who know responses of httpx."""
        return self

    def get(self, name: str, default: str = "") -> str:
        """The value of a header, of several ones joined with commas."""
        value = self._index().get(name.encode())
        return default if value is None else value.decode("latin-1")

    def has(self, name: bytes) -> bool:
        """Whether there is such a header."""
        return name in self._index()

    def raw(self, name: bytes) -> bytes:
        """The value of a header as it came; empty if there is none."""
        return self._index().get(name, b"")

    def items(self) -> Iterator[tuple[str, str]]:
        """Every header once, its name in lower case."""
        for name, value in self._index().items():
            yield name.decode("latin-1"), value.decode("latin-1")

    def _index(self) -> dict[bytes, bytes]:
        if self._known is None:
            known: dict[bytes, bytes] = {}
            for name, value in self.lines:
                lower = name.lower()
                known[lower] = known[lower] + b", " + value if lower in known else value
            self._known = known
        return self._known

    @property
    def is_chunked(self) -> bool:
        """Whether its body tells by itself where it ends."""
        return b"chunked" in self.raw(b"transfer-encoding").lower()

    def passed_on(self, without: Iterable[bytes] = ()) -> Headers:
        """What is said of the message itself, without these names."""
        left_out = {*_OF_THE_CONNECTION, *without}
        named = self.raw(b"connection")
        if named and named.lower() not in {b"keep-alive", b"close"}:
            left_out.update(word.strip().lower() for word in named.split(b","))
            left_out.discard(b"content-length")  # the body would be taken for the next message
        return [pair for pair in self.lines if pair[0].lower() not in left_out]


class RequestHead(Head):
    """Of a request."""

    __slots__ = ("keeps_alive", "method", "target", "token_in_path", "version")

    def __init__(self) -> None:
        super().__init__()
        self.method, self.target, self.version, self.keeps_alive = b"", b"", "1.1", True
        self.token_in_path: bytes | None = None

    @property
    def asks_for_health(self) -> bool:
        """Whether it only wants to know if somebody is there."""
        return self.target.partition(b"?")[0] == b"/healthz"


class AnswerHead(Head):
    """Of an answer."""

    __slots__ = ("reason", "status_code")

    def __init__(self) -> None:
        super().__init__()
        self.status_code, self.reason = 0, b""

    @property
    def is_informational(self) -> bool:
        """Whether the answer itself is still to come."""
        return self.status_code in _INFORMATIONAL and not self.is_switching

    @property
    def is_switching(self) -> bool:
        """Whether it announces another protocol."""
        return self.status_code == _SWITCHING

    def has_body(self, method: bytes) -> bool:
        """Whether a body may follow."""
        return method != b"HEAD" and self.status_code not in _WITHOUT_BODY


def written(first_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A head as it goes over the wire."""
    lines = [first_line, *(name + b": " + value for name, value in headers), b"", b""]
    return b"\r\n".join(lines)


def chunk(piece: bytes) -> bytes:
    """A piece of a body that tells by itself where it ends."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def last_chunk(trailers: Headers) -> bytes:
    """The end of such a body."""
    return written(b"0", trailers)


def phrase(status: int) -> bytes:
    """The words that go with a status of our own."""
    return HTTPStatus(status).phrase.encode()


def plain(headers: Mapping[str, str]) -> Headers:
    """Headers of our own."""
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def own_body(told: Mapping[str, object]) -> bytes:
    """The body of an answer of the gateway's own."""
    return json.dumps({"headway": told}).encode() + b"\n"
