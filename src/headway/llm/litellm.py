"""Counts every call of litellm, whichever of its HTTP clients sends it."""

from __future__ import annotations

import asyncio
from functools import wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headway.errors import ConfigError
from headway.llm.transports import AsyncHeadwayTransport, HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from headway.events import Event
    from headway.governor import Governor
    from headway.llm.retrying import Retry

_original_create_client: dict[type, Callable[..., Any]] = {}


def install(
    governor: Governor | None = None,
    *,
    task: str | None = None,
    priority: int = 0,
    timeout: float | str | None = None,
    on_wait: Callable[[Event], None] | None = None,
    raise_truncated: bool = False,
    retry: int | Retry | None = None,
) -> None:
    """Count all calls that this process makes with litellm from now on; no ``client=`` is needed.

    The options are those of ``HeadwayTransport``. A second call replaces those of the first.
    A ``client=`` given to a call, if it was made before, stays as it was. litellm sends
    with httpx afterwards, not with aiohttp.
    """
    options = {
        "governor": governor,
        "task": task,
        "priority": priority,
        "timeout": timeout,
        "on_wait": on_wait,
        "raise_truncated": raise_truncated,
        "retry": retry,
    }
    HeadwayTransport(**options)  # type: ignore[arg-type]  # refuses bad values before anything changes
    import httpx  # noqa: PLC0415
    import litellm  # noqa: PLC0415 - it takes seconds to load
    from litellm.llms.custom_httpx.http_handler import (  # noqa: PLC0415
        AsyncHTTPHandler,
        HTTPHandler,
    )

    places: Any = litellm
    handlers = (HTTPHandler, AsyncHTTPHandler)
    if not all(hasattr(handler, "create_client") for handler in handlers):
        raise ConfigError(
            f"litellm {version('litellm')} is too old: its HTTPHandler has no create_client();"
            " install a newer one, or give the transport to each call as client="
        )
    places.disable_aiohttp_transport = True
    for handler in handlers:
        _count_clients_of(handler, options)
    # For OpenAI and Azure, whose SDK makes clients of its own otherwise.
    places.client_session = HTTPHandler().create_client()
    per_loop: Any = _PerLoop(AsyncHTTPHandler())
    places.aclient_session = httpx.AsyncClient(transport=per_loop, follow_redirects=True)
    # Those that were made before; litellm makes new ones when it needs them.
    places.in_memory_llm_clients_cache.flush_cache()
    for name in ("module_level_client", "module_level_aclient"):
        vars(litellm).pop(name, None)


def _count_clients_of(handler: type[Any], options: dict[str, Any]) -> None:
    create = _original_create_client.setdefault(handler, handler.create_client)

    @wraps(create)
    def create_client(self: Any, *args: Any, **more: Any) -> Any:
        return _counted(create(self, *args, **more), options)

    handler.create_client = create_client


def _counted(client: Any, options: dict[str, Any]) -> Any:
    """The same client with counting transports; its certificates and proxies are kept."""
    client._transport = _counting(client._transport, options)  # noqa: SLF001
    for pattern, transport in client._mounts.items():  # noqa: SLF001
        if transport is not None:  # none: the one above
            client._mounts[pattern] = _counting(transport, options)  # noqa: SLF001
    return client


def _counting(transport: Any, options: dict[str, Any]) -> Any:
    if isinstance(transport, (HeadwayTransport, AsyncHeadwayTransport)):
        return transport  # or the call would take two slots
    wrap: type[Any] = (
        AsyncHeadwayTransport if hasattr(transport, "handle_async_request") else HeadwayTransport
    )
    return wrap(transport=transport, **options)


class _PerLoop:
    """Sends with one client per event loop: litellm has one session for all of them.

    A connection of a loop that has ended cannot be used by the next.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def handle_async_request(self, request: Any) -> Any:
        """Send it on a connection of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._handler.create_client(None, None)
        return await client._transport_for_url(request.url).handle_async_request(request)  # noqa: SLF001

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the running loop's client; those of other loops can be closed only there."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
