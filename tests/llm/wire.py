"""How an answer goes out: whole or in drops, packed or plain, and cut wherever the plan says."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.llm.plans import Plan

_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Over(Exception):  # noqa: N818 - it is what happened, not what went wrong
    """As planned, there is nothing more to write, to this response or to nobody."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__(response)
        self.response = response


class Wire:
    """One response, written piece by piece."""

    def __init__(self, request: web.Request, plan: Plan, end: Callable[[], None]) -> None:
        self._request, self._plan, self._end = request, plan, end
        self._packer = zlib.compressobj(wbits=_WINDOWS[plan.encoding]) if plan.encoding else None
        self._left = plan.cut_at if plan.cut and plan.cut_at >= 0 else None
        self.response = web.StreamResponse()

    async def begin(self, kind: str, length: int | None = None) -> None:
        """Send the headers; a body of known length is not packed piece by piece."""
        headers = self.response.headers
        headers.update(self._plan.headers)
        if self._plan.retry_after:
            headers["Retry-After"] = self._plan.retry_after
        if self._plan.encoding:
            headers["Content-Encoding"] = self._plan.encoding
        if length is not None:
            self._packer = None
            is_short = self._plan.cut == "clean" and self._left is not None
            self.response.content_length = min(length, self._left or 0) if is_short else length
        self.response.content_type = kind
        await self.response.prepare(self._request)

    def pack(self, body: bytes) -> bytes:
        """The whole body at once."""
        return self._packer.compress(body) + self._packer.flush() if self._packer else body

    async def write_slowly(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            await self.write(piece)
            await asyncio.sleep(self._plan.chunk_delay)

    async def write(self, piece: bytes) -> None:
        if self._packer:
            piece = self._packer.compress(piece) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        await self._write_packed(piece)

    async def finish(self, closing: bytes) -> web.StreamResponse:
        """The last piece.

        All that tells the client "over" goes out in one piece, and is counted as over just
        before: a client that starts the next request upon it never makes two of one.
        """
        if self._packer:
            closing = self._packer.compress(closing) + self._packer.flush()
        if self._left is not None and self._left < len(closing):
            await self._write_packed(closing)
        if self._plan.trickle:
            await self._write_packed(closing[:-1])
            closing = closing[-1:]
        self._end()
        await self.response.write_eof(closing)
        return self.response

    async def cut(self) -> None:
        """End it here, in the way that is planned."""
        if self._plan.cut == "reset":
            self.hang_up()
        self._end()
        if self._plan.cut == "close":
            assert self._request.transport is not None
            self._request.transport.close()
            raise Over(web.Response())
        await self.response.write_eof()
        raise Over(self.response)

    def hang_up(self) -> None:
        """Reset the connection; what the client has not read yet may be lost."""
        transport = self._request.transport
        if transport is not None:
            self._end()
            with_reset = struct.pack("ii", 1, 0)
            raw: Any = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, with_reset)
            transport.abort()
        raise Over(web.Response())

    async def _write_packed(self, piece: bytes) -> None:
        if self._left is not None and self._left < len(piece):
            await self._in_drops(piece[: self._left])
            await self.cut()
        await self._in_drops(piece)
        if self._left is not None:
            self._left -= len(piece)

    async def _in_drops(self, piece: bytes) -> None:
        step = self._plan.trickle or len(piece)
        for at in range(0, len(piece), step or 1):
            await self.response.write(piece[at : at + step])
            if self._plan.trickle:
                await asyncio.sleep(self._plan.chunk_delay)
