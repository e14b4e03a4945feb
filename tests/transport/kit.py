"""A provider in the same process, which answers as a test has scripted it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

from headway.llm import AsyncHeadwayTransport, HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from headway import Governor
    from headway.events import Event

URL = "https://api.openai.com/v1/chat/completions"
KEY = "llm/openai/gpt"
ASK = {"model": "gpt", "messages": [{"role": "user", "content": "why?"}]}
SSE = {"content-type": "text/event-stream"}
WHOLE = [b'data: {"choices": []}\n\n', b"data: [DONE]\n\n"]
CUT = WHOLE[:1]

Piece = bytes | BaseException


class Provider:
    """A transport for both kinds of clients; ``lib`` is httpx or httpx2.

    It gives the pieces of the body one by one; one that is an error is raised there.
    """

    def __init__(
        self,
        lib: Any,
        pieces: Iterable[Piece] = (b"{}",),
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        refuses: BaseException | None = None,
    ) -> None:
        self.lib, self.pieces = lib, list(pieces)
        self.status, self.headers, self.refuses = status, headers or {}, refuses
        self.asked: list[Any] = []
        self.open = self.closed = 0
        self.on_request: Callable[[], object] = lambda: None
        self.on_close: Callable[[], object] = lambda: None

    def handle_request(self, request: Any) -> Any:
        self.asked.append(request)
        self.on_request()
        if self.refuses is not None:
            raise self.refuses
        self.open += 1
        return self.lib.Response(self.status, headers=self.headers, stream=_body(self))

    async def handle_async_request(self, request: Any) -> Any:
        await asyncio.sleep(0)
        response = self.handle_request(request)
        await asyncio.sleep(0)
        return response

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is kept."""


def _body(provider: Provider) -> Any:
    class Body(provider.lib.SyncByteStream, provider.lib.AsyncByteStream):  # type: ignore[name-defined, misc]
        is_open = True

        def __iter__(self) -> Any:
            for piece in provider.pieces:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece

        async def __aiter__(self) -> Any:
            for piece in provider.pieces:
                await asyncio.sleep(0)
                if isinstance(piece, BaseException):
                    raise piece
                yield piece

        def close(self) -> None:
            if self.is_open:
                self.is_open = False
                provider.open -= 1
                provider.closed += 1
            provider.on_close()

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            self.close()

    return Body()


def client_of(lib: Any, governor: Governor | None, provider: Any, **options: Any) -> Any:
    """A plain client whose requests are counted on their way to the provider."""
    return lib.Client(transport=HeadwayTransport(None, governor, provider, **options))


def async_client_of(lib: Any, governor: Governor | None, provider: Any, **options: Any) -> Any:
    """The same for coroutines."""
    return lib.AsyncClient(transport=AsyncHeadwayTransport(None, governor, provider, **options))


def used(governor: Governor) -> int:
    """How many leases there are now."""
    return len(governor.snapshot().leases)


class Heard:
    """What a governor told."""

    def __init__(self, governor: Governor) -> None:
        self.events: list[Event] = []
        governor.subscribe(self.events.append)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def only(self, kind: str) -> Any:
        """The one event of this kind."""
        found = [event for event in self.events if event.kind == kind]
        assert len(found) == 1, self.kinds()
        return found[0]


def ask(client: Any, **more: Any) -> Any:
    """One call that is not streamed."""
    return client.post(URL, content=json.dumps(ASK), headers=_JSON, **more)


def stream(client: Any) -> Any:
    """The block of a streamed call."""
    return client.stream("POST", URL, content=json.dumps(ASK), headers=_JSON)


def open_stream(client: Any) -> Any:
    """A streamed response that nobody has promised to close; to be awaited for async clients."""
    request = client.build_request("POST", URL, content=json.dumps(ASK), headers=_JSON)
    return client.send(request, stream=True)


_JSON = {"content-type": "application/json"}


def spoil_releases(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have nothing given back in this store until the answer is called."""
    store = governor.turnstile.store
    mended = threading.Event()
    original = store.release

    def release(*args: Any, **options: Any) -> bool:
        if not mended.is_set():
            raise OSError("no such luck")
        return original(*args, **options)

    monkeypatch.setattr(store, "release", release)
    return mended.set
