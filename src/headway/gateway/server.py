"""The gateway itself: listens, answers, follows its settings, and cuts nobody off at its end."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from headway import config
from headway.config import Settings
from headway.errors import ConfigError, HeadwayError
from headway.gateway import heads
from headway.gateway.access_log import TurnedAway
from headway.gateway.clients import Bounds, Client
from headway.gateway.door import Door, is_loopback
from headway.gateway.exchange import GATEWAY_STOPPED, Exchange
from headway.gateway.routing import Routes
from headway.telling import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.gateway.access_log import Noted
    from headway.gateway.clients import Request
    from headway.gateway.heads import RequestHead
    from headway.gateway.lines import Lines
    from headway.governor import Governor

_LOOK_SECONDS = 1.0
_HEAD_BYTES = 65_536
_BACKLOG = 1024


class Gateway:
    """Serves every client on one loop."""

    def __init__(
        self,
        governor: Governor,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        host: str = "127.0.0.1",
        log: Callable[[Noted], None] | None = None,
    ) -> None:
        self._governor, self._environ = governor, environ
        self._home, self._stamp = settings.home, config.stamp(settings.home)
        self._host, self._log = host, log
        self._clients: set[Client] = set()
        # Of former settings too: somebody may still be under way with those.
        self._lines: weakref.WeakSet[Lines] = weakref.WeakSet()
        self._nobody_left = asyncio.Event()
        self._is_stopping = self._is_behind = False
        self._cut_answers = 0
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        self._follow(settings)

    def _follow(self, settings: Settings) -> None:
        if not is_loopback(self._host) and settings.gateway_token is None:
            raise ConfigError(
                f"{self._host} can be reached by others; set gateway.token, or"
                " HEADWAY_GATEWAY_TOKEN, and have the tools send it"
            )
        self.routes = Routes(self._governor, settings, self._environ)
        self._lines.update(self.routes.lines)
        self._known = _ours(settings)
        self._door = Door(self._host, settings.gateway_token)
        self._bounds = Bounds(
            body_bytes=settings.gateway_max_body_bytes,
            all_bodies_bytes=settings.gateway_max_bodies_bytes,
            head_bytes=_HEAD_BYTES,
            patience_seconds=settings.gateway_patience_seconds,
        )

    async def start(self, port: int) -> int:
        """Listen; the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Client(self, self._bounds), self._host, port, backlog=_BACKLOG
        )
        self._looking = asyncio.create_task(self._look_at_the_clock())
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, patience_seconds: float) -> int:
        """Take no more requests, and cut those that have not ended in so long; how many."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for client in [*self._clients]:
            client.drain()
        self._nobody_left.clear()
        if self._clients:
            try:
                await asyncio.wait_for(self._nobody_left.wait(), patience_seconds)
            except TimeoutError:
                self.cut()
                await self._nobody_left.wait()
        if self._looking is not None:
            self._looking.cancel()
        self.routes.close()
        await asyncio.sleep(0)  # what was closed hears of it
        return self._cut_answers

    def cut(self) -> None:
        """End all that is under way."""
        self._is_stopping = True
        for client in [*self._clients]:
            client.cut()

    @property
    def busy(self) -> int:
        """How many requests are under way."""
        return sum(not client.is_idle for client in self._clients)

    async def _look_at_the_clock(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = loop.time()
            for lines in [*self._lines]:
                lines.look_at_the_clock(now)
            for client in [*self._clients]:
                client.look_at_the_clock(now)
            stamp = config.stamp(self._home)
            if stamp != self._stamp and await self._reload():
                self._stamp = stamp

    async def _reload(self) -> bool:
        """The file was changed: its limits and upstreams count from now on. Whether that is it."""
        before = self.routes
        try:
            await self._governor.areload()
            settings = config.load(self._home, self._environ)
            if _ours(settings) != self._known:
                self._follow(settings)
                before.close()
        except ConfigError as error:
            self._is_behind = True
            warn(f"the settings stay as they were: {error}")
            return True
        except HeadwayError as error:
            self._is_behind = True
            warn(f"the settings stay as they were for now: {error}")
            return False
        if self._is_behind:
            self._is_behind = False
            warn("the settings are right, and in force again")
        return True

    # -- the desk of the clients --------------------------------------------------------------

    def welcome(self, client: Client) -> None:
        """A connection was opened."""
        self._clients.add(client)
        if self._is_stopping:  # it came just before
            client.drain()

    def farewell(self, client: Client) -> None:
        """It was closed."""
        self._clients.discard(client)
        if not self._clients:
            self._nobody_left.set()

    def refusal(self, head: RequestHead) -> tuple[int, str] | None:
        """Why a request is refused by its headers, before its body is read: a status and words."""
        return self._door.refusal(head)

    async def answer(self, request: Request) -> None:
        """See one request through."""
        head = request.head
        if request.refusal is not None:
            self._turn_away(request, *request.refusal)
            return
        route = self.routes.find(head)
        if route is None:
            self._answer_ourselves(request)
            return
        try:
            target = self.routes.target(request, route)
        except (ConfigError, ValueError) as error:
            self._turn_away(request, 400, str(error))
            return
        exchange = Exchange(request, route, target)
        try:
            await exchange.run()
        finally:
            self._cut_answers += exchange.outcome == GATEWAY_STOPPED
            self._note(exchange)

    def turned_away(self, head: RequestHead, status: int, why: str) -> None:
        """Something was refused that was not worth a request."""
        self._door.take_token(head)
        route = self.routes.find(head)
        self._note(TurnedAway(head, None if route is None else route.task, status, why))

    def _note(self, noted: Noted) -> None:
        try:
            if self._log is not None:
                self._log(noted)
        except OSError as error:  # a full disk, a closed pipe: no reason to end an answer
            self._log = None
            warn(f"the log is not written any more: {error}")

    def _answer_ourselves(self, request: Request) -> None:
        if request.head.asks_for_health:
            others = {"busy": self.busy - 1} if self._door.may_know(request.head) else {}
            headers = {"content-type": "application/json"}
            told = heads.own_body({"status": "ok", **others})
            request.client.reply(request.head, 200, headers, told)
        else:
            known = ", ".join(f"/{name}" for name in self.routes.upstreams)
            self._turn_away(request, 404, f"the path names no upstream; there are {known}")

    def _turn_away(self, request: Request, status: int, why: str) -> None:
        request.client.refuse(request.head, status, why)
        self.turned_away(request.head, status, why)


def _ours(settings: Settings) -> dict[str, object]:
    """The settings that are the gateway's."""
    names = [name for name in Settings.__slots__ if name.startswith("gateway_")]
    return {name: getattr(settings, name) for name in names}
