"""A response's body, which keeps the slot of its request until it has ended, in whatever way.

It ends by being exhausted, by failing, by being closed or by being dropped: in the last
case the lease gives itself back when it is collected (``HeldLease``). The slot object sees
to it that it is given back once.
"""

from __future__ import annotations

import _thread
import asyncio
from typing import TYPE_CHECKING, Any
from weakref import ref

from headway.llm.calls import IDLE, READING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from headway.llm.calls import Call


class LeasedBody:
    """For plain clients."""

    def __init__(self, stream: Any, call: Call) -> None:
        self._stream, self._is_open = stream, True
        # Let go of at the end: clients keep responses in circles of references, and whatever
        # hangs on to them is more for the collector to look through.
        self._call: Call | None = call
        self._opener = _thread.get_ident()

    def __iter__(self) -> Iterator[bytes]:
        call = self._call
        if call is None:
            return
        if self._opener != (reader := _thread.get_ident()):
            call.hand_to(lambda: reader == _thread.get_ident())
        ending, call.pulse = call.ending, READING
        try:
            for chunk in self._stream:
                if ending is not None:
                    ending.feed(chunk)
                call.pulse = IDLE
                yield chunk
                call.pulse = READING
        except GeneratorExit:
            # The consumer has left, and will close or drop the response. Not closed here: it may
            # be the collector that ends this, in the middle of anything.
            raise
        except BaseException as error:
            self._break_off(error, call)
            raise
        call.__exit__(None, None, None)
        self._call = None
        if self._is_open:
            call.judge()

    def close(self) -> None:
        """The provider is hung up on first, so that nobody is let in beside a running request."""
        call = self._call
        try:
            if self._is_open:
                self._is_open = False
                self._stream.close()
        finally:
            if call is not None:
                call.__exit__(None, None, None)
                self._call = None

    def _break_off(self, error: BaseException, call: Call) -> None:
        was_open = self._is_open  # or somebody else closes it, who knows what they do
        try:
            self.close()
        except Exception as trouble:  # noqa: BLE001 - told with the error that came first
            error.add_note(f"closing the response failed too: {trouble!r}")
        if was_open:
            call.broke_off(error)


class AsyncLeasedBody:
    """For clients on asyncio."""

    def __init__(self, stream: Any, call: Call) -> None:
        self._stream, self._is_open = stream, True
        self._call: Call | None = call
        self._opener = id(asyncio.current_task())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        call = self._call
        if call is None:
            return
        if self._opener != id(asyncio.current_task()):
            call.hand_to(_present_task())
        ending, call.pulse = call.ending, READING
        try:
            async for chunk in self._stream:
                if ending is not None:
                    ending.feed(chunk)
                call.pulse = IDLE
                yield chunk
                call.pulse = READING
        except GeneratorExit:
            raise  # the same, or the loop was closed over it, and nothing can be awaited
        except BaseException as error:
            await self._break_off(error, call)
            raise
        await call.__aexit__(None, None, None)
        self._call = None
        if self._is_open:
            call.judge()

    async def aclose(self) -> None:
        """Like ``close`` of a plain body; a cancellation does not stop it half-way."""
        call = self._call
        try:
            if self._is_open:
                self._is_open = False
                await self._stream.aclose()
        except BaseException as error:
            if call is not None:
                await call.__aexit__(type(error), error, error.__traceback__)
            raise
        if call is not None:
            await call.__aexit__(None, None, None)
            self._call = None

    async def _break_off(self, error: BaseException, call: Call) -> None:
        was_open = self._is_open
        try:
            await self.aclose()
        except Exception as trouble:  # noqa: BLE001 - told with the error that came first
            error.add_note(f"closing the response failed too: {trouble!r}")
        if was_open:
            call.broke_off(error)


def _present_task() -> Callable[[], bool]:
    """Whether it is this task again; or this one was made for a single step, and is done."""
    task = asyncio.current_task()
    known = ref(task) if task is not None else lambda: None

    def is_here() -> bool:
        reader = known()
        if reader is None or reader.done():
            return True
        try:
            return reader is asyncio.current_task()
        except RuntimeError:  # no loop here
            return False

    return is_here
