"""An upstream that answers at once, so that what is measured is what stands in front of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import httptools

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MODEL = "gpt"
PATH = "/v1/chat/completions"
_SAID = {"role": "assistant", "content": "hello"}
_USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
_ABOUT = {"id": "c", "created": 1, "model": MODEL}
_WHOLE = json.dumps(
    {
        **_ABOUT,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": _SAID, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
).encode()
_DELTA = {"index": 0, "delta": {"role": "assistant", "content": "word " * 10}}
CHUNK = json.dumps({**_ABOUT, "object": "chat.completion.chunk", "choices": [_DELTA]}).encode()


def ask(**more: object) -> bytes:
    """The body of a request; for a stream, ``max_tokens`` says how many pieces it has."""
    said = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    return json.dumps({**said, **more}).encode()


def serve(pipe: Connection) -> None:
    """Serve in this process, and tell the port."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Answering, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


class _Answering(asyncio.Protocol):
    """Answers whole, or in so many pieces; a stream of none begins and is held open."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        asked, self._body = json.loads(self._body or b"{}"), b""
        if asked.get("stream"):
            self._stream(asked["max_tokens"])
        else:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(_WHOLE), _WHOLE)
            )

    def _stream(self, pieces: int) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(pieces or 1):
            self._transport.write(framed(b"data: " + CHUNK + b"\n\n"))
        if pieces:
            self._transport.write(framed(b"data: [DONE]\n\n") + framed(b""))


def framed(piece: bytes) -> bytes:
    """A piece of a body that tells by itself where it ends."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
