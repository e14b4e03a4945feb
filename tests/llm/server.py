"""The handle that tests hold: a model server on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from tests.llm.app import App
from tests.llm.plans import Orders
from tests.llm.traffic import Record, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE_SECONDS = 60.0


class Server:
    """Speaks to many clients, does what the test plans, and counts by itself."""

    def __init__(self) -> None:
        self.port = 0
        self._orders, self._traffic = Orders(), Traffic()
        self._app = App(self._orders, self._traffic)
        self._is_up, self._is_over = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="llm-server", daemon=True)

    @property
    def url(self) -> str:
        """Without ``/v1``; a prefix such as ``/t/run42`` may be added."""
        return f"http://127.0.0.1:{self.port}"

    def plan(self, *, model: str | None = None, match: str = "", **wanted: Any) -> None:
        """From now on, do this to requests for the model whose prompt or path has the match.

        The fields are those of ``Plan``; the newest plan that applies wins.
        """
        self._orders.add(model, match, wanted)

    def forget_plans(self) -> None:
        self._orders.clear()

    def release(self, model: str | None = None, *, later_too: bool = False) -> None:
        """Let go of what is held now, and of what would be held later."""
        self._loop.call_soon_threadsafe(lambda: self._app.release(model, later_too=later_too))

    def in_flight(self, model: str | None = None) -> int:
        return self._traffic.in_flight(model)

    def peak(self, model: str | None = None) -> int:
        """The most that ever were in flight at once."""
        return self._traffic.peak(model)

    def held(self, model: str | None = None) -> int:
        return self._traffic.held(model)

    def requests(self, model: str | None = None, *, titles: bool = False) -> list[Record]:
        """What came, oldest first."""
        return self._traffic.requests(model, titles=titles)

    @property
    def probes(self) -> list[str]:
        """Requests that asked no model, as "METHOD /path"."""
        with self._traffic.changed:
            return list(self._traffic.probes)

    def until(
        self, condition: Callable[[Server], bool], timeout_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        """Return when the condition holds; it is asked again upon each change, never by sleep."""
        deadline = time.monotonic() + timeout_seconds
        with self._traffic.changed:
            while not condition(self):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not in {timeout_seconds} s; {self._what_is()}")
                self._traffic.changed.wait(left)

    async def until_async(
        self, condition: Callable[[Server], bool], timeout_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        """The same for a coroutine, whose loop goes on meanwhile."""
        await asyncio.to_thread(self.until, condition, timeout_seconds)

    def start(self) -> None:
        self._thread.start()
        if not self._is_up.wait(_PATIENCE_SECONDS):
            raise TimeoutError("the model server did not start")

    def stop(self) -> None:
        """Hang up on everyone."""
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        runner = web.AppRunner(
            self._app.application(),
            access_log=None,
            handler_cancellation=True,  # a client that left is counted as gone at once
            shutdown_timeout=0.1,
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        self.port = runner.addresses[0][1]
        self._is_up.set()
        await self._is_over.wait()
        self._app.release(None, later_too=True)
        await runner.cleanup()

    def _what_is(self) -> str:
        counts = f"{self.in_flight()} in flight, {self.held()} held"
        return f"{counts}, {len(self.requests(titles=True))} requests, {self.probes=}"


@contextmanager
def serving() -> Iterator[Server]:
    """A server for as long as the block lasts."""
    server = Server()
    server.start()
    try:
        yield server
    finally:
        server.stop()
