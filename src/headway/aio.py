"""The asyncio half of the turnstile. Loaded only by programs that use asyncio.

Store calls are tried on the loop first: they take microseconds. One that would
have to wait for the store goes to a thread of Headway's own, and is never left
alone: a grant that lands after its caller went away would stay behind.
"""

from __future__ import annotations

import _thread
import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from headway.errors import HeadwayError
from headway.stores import patience
from headway.stores.base import WouldBlock
from headway.tickets import Granted, Waiting
from headway.turnstile import NOTICE_SECONDS, SETTLED, is_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.events import Event
    from headway.slot import HeldLease, Request
    from headway.stores.base import Store
    from headway.tickets import Answer, Decision, Ticket
    from headway.turnstile import Turnstile

T = TypeVar("T")

_PAUSES_SECONDS = (0, 0, 0.0005, 0.001, 0.002, 0.004)
_pool: ThreadPoolExecutor | None = None


class LoopWaiter:
    """A task that waits for one decision."""

    __slots__ = ("_loop", "_thread_id", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = _thread.get_ident()
        self.future: asyncio.Future[Decision] = self._loop.create_future()

    def wake(self, decision: Decision) -> bool:
        """Hand the decision over from any thread; false if the loop is closed."""
        if self._loop.is_closed():
            return False
        here = self._thread_id == _thread.get_ident()
        if here and asyncio.current_task(self._loop) is not None:
            # Not if it may be asleep: a signal handler does not wake it.
            self._resolve(decision)
            return True
        try:
            self._loop.call_soon_threadsafe(self._resolve, decision)
        except RuntimeError:
            return False
        return True

    def _resolve(self, decision: Decision) -> None:
        if not self.future.done():
            self.future.set_result(decision)


async def acquire(turnstile: Turnstile, request: Request) -> HeldLease:
    """Like ``Turnstile.acquire``, without blocking the event loop."""
    task = _current_task()
    if task is not None and task.cancelling():
        # Cancelled before it came here: let that be noticed, if it was not yet.
        await asyncio.sleep(0)
    started = time.monotonic()
    ticket, store = turnstile.new_ticket(request), turnstile.store
    try:
        try:
            answer = store.request(ticket, wait=request.wait, patient=False)
        except WouldBlock:
            answer = await _request_later(store, ticket, request)
        if store.news:
            turnstile.switchboard.deliver()
        if answer.__class__ is not Granted:
            decision = await _turn(turnstile, ticket, request, answer)
            if is_verdict(decision):
                await finish(turnstile, ticket, 0.0)
            turnstile.settle(ticket, request, decision)
        elif turnstile.is_time_to_give_way():
            await asyncio.sleep(0)
        return turnstile.new_lease(ticket, started)
    except SETTLED:
        raise
    except GeneratorExit:
        # Nothing can be awaited any more: the loop was closed over this task.
        turnstile.abandon(ticket)
        raise
    except BaseException:
        await finish(turnstile, ticket, 0.0)
        turnstile.teller.abandoned(ticket)
        raise


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        refuse_other_loops()
        raise


async def _request_later(store: Store, ticket: Ticket, request: Request) -> Answer:
    """Someone is inside: try again on the loop for a while, then wait in a thread.

    Mostly it is another process that leaves in a moment. A thread would hold what it
    waits for while it competes with this loop for the interpreter. A distant store is
    never asked from a loop.
    """
    for pause_seconds in () if store.distant else _PAUSES_SECONDS:
        await asyncio.sleep(pause_seconds)
        try:
            return store.request(ticket, wait=request.wait, patient=False)
        except WouldBlock:
            continue
    return await in_thread(lambda: store.request(ticket, wait=request.wait))


async def _turn(
    turnstile: Turnstile, ticket: Ticket, request: Request, answer: Answer
) -> Decision | None:
    """The decision on a waiting ticket, or none when its time ran out first."""
    if not isinstance(answer, Waiting):
        return answer
    switchboard, timeout = turnstile.switchboard, request.timeout_seconds
    waiter = LoopWaiter()
    notice = NOTICE_SECONDS if timeout is None else min(NOTICE_SECONDS, timeout)
    try:
        decision = switchboard.attach(ticket.id, waiter)
        if decision is not None:
            return decision
        if turnstile.store.shared:
            switchboard.attend()
        await asyncio.wait({waiter.future}, timeout=notice)
        if not waiter.future.done() and timeout != notice:
            turnstile.worry(ticket)
            on_wait = _on_loop(request.on_wait)
            if turnstile.teller.hears_of_waiting(on_wait):
                await in_thread(lambda: turnstile.announce(ticket, on_wait))
            left = None if timeout is None else timeout - notice
            await asyncio.wait({waiter.future}, timeout=left)
    finally:
        switchboard.detach(ticket.id)
    if waiter.future.done():
        return waiter.future.result()
    return await in_thread(lambda: turnstile.withdraw(ticket))


async def finish(turnstile: Turnstile, ticket: Ticket, held_seconds: float) -> None:
    """Take a ticket off the store before the caller goes on, cancelled or not."""
    await in_thread(lambda: turnstile.finish_or_retry(ticket, held_seconds))


async def in_thread(call: Callable[[], T]) -> T:
    """Run a store call in a thread; if cancelled, let it finish before leaving.

    Threads cannot be cancelled. Leaving early would let a grant land after its
    ticket was withdrawn. The pool is ours alone: on asyncio's shared one, callers
    who wait for a slot can occupy every thread that a release needs.
    """
    global _pool  # noqa: PLW0603 - made when first needed
    refuse_other_loops()
    if _pool is None:
        _pool = ThreadPoolExecutor(8, thread_name_prefix="headway")
    pending = asyncio.get_running_loop().run_in_executor(
        _pool, patience.since, time.monotonic(), call
    )
    try:
        return await asyncio.shield(pending)
    except asyncio.CancelledError:
        while not pending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({pending})
        if not pending.cancelled():
            # Marks its error as seen: asyncio would print it as never retrieved.
            pending.exception()
        raise


def refuse_other_loops(
    what: str = "Headway's async calls",
    instead: str = "the blocking call in a thread, such as trio.to_thread.run_sync",
) -> None:
    """Raise what to do where a coroutine is driven by something else than asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise HeadwayError(
            f"{what} need asyncio, and no asyncio event loop runs here (trio?);"
            f" use asyncio, or {instead}"
        ) from None


def forget_after_fork() -> None:
    """The pool's threads stayed in the parent."""
    global _pool  # noqa: PLW0603
    _pool = None


def _on_loop(on_wait: Callable[[Event], None] | None) -> Callable[[Event], None] | None:
    """Have a callback called on the loop it came from, whatever thread the event is in."""
    if on_wait is None:
        return None
    loop = asyncio.get_running_loop()

    def call_on_loop(event: Event) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_call_hook, on_wait, event)

    return call_on_loop


def _call_hook(on_wait: Callable[[Event], None], event: Event) -> None:
    from headway import events  # noqa: PLC0415

    events.call(on_wait, event)
