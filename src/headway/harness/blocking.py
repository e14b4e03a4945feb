"""Coroutines for plain code: run to their end while the caller waits, wherever it is."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from headway import callers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine on a loop of its own; in a thread, if the caller's has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner() as runner:
            return runner.run(work())
    return _Beside(work).wait()


class _Beside(Generic[T]):
    """A thread for a coroutine: the caller's has an event loop, which it chose to block."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._done: list[T] = []
        self._failed: list[BaseException] = []
        self._begun: list[Callable[[], object]] = []
        self._is_given_up, self._is_over = threading.Event(), threading.Event()

    def wait(self) -> T:
        """Its result, or what it raised; whoever is interrupted has it cancelled first."""
        context = contextvars.copy_context()
        # Leases of tasks on the loop cannot end before this does: no request here may wait for one.
        context.run(callers.block_for_this_context, asyncio.get_running_loop())
        thread = threading.Thread(target=context.run, args=(self._run,))
        thread.start()
        try:
            self._is_over.wait()  # Ctrl-C in a join() makes Python take the thread for ended
        except BaseException:
            self._give_up()
            raise
        finally:
            thread.join()
        if self._failed:
            raise self._failed[0]
        return self._done[0]

    def _give_up(self) -> None:
        self._is_given_up.set()
        for cancel in self._begun:
            with suppress(RuntimeError):  # it has just ended
                cancel()
        self._is_over.wait()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._done.append(runner.run(self._begin()))
        except BaseException as error:  # noqa: BLE001 - raised again where it belongs
            self._failed.append(error)
        finally:
            self._is_over.set()

    async def _begin(self) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._begun.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if self._is_given_up.is_set():
            raise asyncio.CancelledError
        return await self._work()
