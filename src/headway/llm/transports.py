"""Transports for httpx and httpx2 under which every request to a provider has its slot.

They derive from neither package at run time: the clients ask for nothing but the methods,
and some refuse what descends from the other package. Type checkers are told otherwise,
because the clients' signatures name the base classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from headway import aio
from headway.llm import dropped, retrying
from headway.llm.calls import Call
from headway.llm.families import family_of
from headway.llm.options import Options
from headway.llm.retrying import TurnedAway
from headway.llm.routes import Routes
from headway.llm.targets import Targets, body_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    import httpx
    import httpx2

    from headway.events import Event
    from headway.governor import Governor
    from headway.llm.families import Family
    from headway.llm.retrying import Retry

    class _Transport(httpx.BaseTransport, httpx2.BaseTransport): ...  # type: ignore[misc]

    class _AsyncTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport): ...  # type: ignore[misc]
else:
    _Transport = _AsyncTransport = object


Below = TypeVar("Below")


class _Gate(Generic[Below]):
    """What both transports are told, and where their requests go on to."""

    _asynchronous: ClassVar[bool]

    def __init__(
        self,
        provider: str | None = None,
        governor: Governor | None = None,
        transport: Below | None = None,
        *,
        task: str | None = None,
        priority: int = 0,
        timeout: float | str | None = None,
        on_wait: Callable[[Event], None] | None = None,
        raise_truncated: bool = False,
        retry: int | Retry | None = None,
    ) -> None:
        self._options = Options(
            provider=provider,
            governor=governor,
            task=task,
            priority=priority,
            timeout=timeout,
            on_wait=on_wait,
            raise_truncated=raise_truncated,
            retry=retry,
        )
        self._routes = Routes(transport, asynchronous=self._asynchronous)
        self._targets = Targets(self._options)

    def _new_call(self, request: Any, path: str, family: Family) -> Call:
        target = self._targets.find(request, path)
        error = family.truncated if self._options.raise_truncated else None
        return Call(target, truncated_error=error)


class HeadwayTransport(_Gate["httpx.BaseTransport | httpx2.BaseTransport"], _Transport):
    """Has every request of a client wait for its slot on ``llm/<provider>/<model>``.

    Give it to the client as ``transport``. The slot is taken before a request is sent and
    is free again when its answer has ended, however it ends. Without ``provider`` the host
    tells it, without ``governor`` the home's counts, and without ``transport`` requests go
    out as httpx would send them. ``timeout`` bounds the time in the queue alone.
    """

    _asynchronous = False

    @overload
    def handle_request(self, request: httpx.Request) -> httpx.Response: ...
    @overload
    def handle_request(self, request: httpx2.Request) -> httpx2.Response: ...
    def handle_request(self, request: Any) -> Any:
        """Send a request when it is its turn."""
        family, retry = family_of(request), self._options.retry
        if retry is None or body_of(request) is None:
            return self._send(request, family)[0]

        def attempt() -> Any:
            response, call = self._send(request, family)
            if not call.is_refused:
                return response
            retrying.take_in(response, family)
            raise TurnedAway(response, call.advice)

        return retrying.send(retry, family, attempt)

    def _send(self, request: Any, family: Family) -> tuple[Any, Call]:
        inner = self._routes.find(family, request.url)
        path = request.url.path
        call = self._new_call(request, path, family)
        response = None
        try:
            call.lease = dropped.enter(call)
            response = inner.handle_request(request)
            call.learn(response, path)
            call.pass_on()
            if not response.is_closed:
                response.stream = family.body(response.stream, call)
                dropped.look_after(call)
                return response, call
        except BaseException as error:
            try:
                if response is not None:
                    response.close()
                elif call.may_be_first:
                    call.stand_back()
            except Exception as trouble:  # noqa: BLE001 - told with the error that came first
                error.add_note(f"closing the response failed too: {trouble!r}")
            finally:
                call.__exit__(type(error), error, error.__traceback__)
            raise
        call.__exit__(None, None, None)
        return response, call

    def close(self) -> None:
        """Close the transports below."""
        for inner in self._routes.all():
            inner.close()

    def __enter__(self) -> Self:
        if self._routes.given is not None:
            self._routes.given.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._routes.given is not None:
            self._routes.given.__exit__(kind, error, trace)
        else:
            self.close()


class AsyncHeadwayTransport(
    _Gate["httpx.AsyncBaseTransport | httpx2.AsyncBaseTransport"], _AsyncTransport
):
    """The same for async clients, on asyncio."""

    _asynchronous = True

    @overload
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...
    @overload
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response: ...
    async def handle_async_request(self, request: Any) -> Any:
        """Send a request when it is its turn."""
        aio.refuse_other_loops(
            "Requests of AsyncHeadwayTransport", "HeadwayTransport with a plain client in a thread"
        )
        family, retry = family_of(request), self._options.retry
        if retry is None or body_of(request) is None:
            return (await self._send(request, family))[0]

        async def attempt() -> Any:
            response, call = await self._send(request, family)
            if not call.is_refused:
                return response
            await retrying.atake_in(response, family)
            raise TurnedAway(response, call.advice)

        return await retrying.asend(retry, family, attempt)

    async def _send(self, request: Any, family: Family) -> tuple[Any, Call]:
        inner = self._routes.find(family, request.url)
        path = request.url.path
        call = self._new_call(request, path, family)
        response = None
        try:
            call.lease = await dropped.aenter(call)
            response = await inner.handle_async_request(request)
            call.learn(response, path)
            if call.takes_time_to_pass_on:
                await aio.in_thread(call.pass_on)
            else:
                call.pass_on()
            if not response.is_closed:
                response.stream = family.async_body(response.stream, call)
                dropped.look_after(call)
                return response, call
        except BaseException as error:
            try:
                if response is None and call.may_be_first:
                    await _stand_back(call, error)
                elif response is not None and not isinstance(error, GeneratorExit):
                    await response.aclose()
            except Exception as trouble:  # noqa: BLE001 - told with the error that came first
                error.add_note(f"closing the response failed too: {trouble!r}")
            finally:
                await call.__aexit__(type(error), error, error.__traceback__)
            raise
        await call.__aexit__(None, None, None)
        return response, call

    async def aclose(self) -> None:
        """Close the transports below."""
        for inner in self._routes.all():
            await inner.aclose()

    async def __aenter__(self) -> Self:
        if self._routes.given is not None:
            await self._routes.given.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._routes.given is not None:
            await self._routes.given.__aexit__(kind, error, trace)
        else:
            await self.aclose()


async def _stand_back(call: Call, error: BaseException) -> None:
    if isinstance(error, GeneratorExit):  # the loop was closed: nothing can be awaited
        call.stand_back()
    else:
        await aio.in_thread(call.stand_back)
