"""Small tools for tests that drive slots from threads and tasks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headway.stores.base import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from headway import Governor

T = TypeVar("T")

PATIENCE_SECONDS = 10.0


def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds; it has to, sooner or later."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.001)


async def auntil(condition: Callable[[], object]) -> None:
    """Like ``until``, in a task."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "this never came true"
        await asyncio.sleep(0.001)


class Worker(threading.Thread, Generic[T]):
    """A thread whose answer or error is kept for whoever joins it."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._answer: T | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Do the work."""
        try:
            self._answer = self._work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def end(self) -> None:
        """Wait for the end, however it came."""
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive(), "the thread hangs"

    def result(self) -> T:
        """Wait for the answer; raise the error if there was one."""
        self.end()
        if self.error is not None:
            raise self.error
        return self._answer  # type: ignore[return-value]


class Crowd:
    """Counts those who are inside, and how many there were at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = self.peak = 0

    def enter(self) -> None:
        """One more."""
        with self._lock:
            self.running += 1
            self.peak = max(self.peak, self.running)

    def leave(self) -> None:
        """One less."""
        with self._lock:
            self.running -= 1


class Held:
    """A slot that another thread holds until told to let go."""

    def __init__(self, governor: Governor, *keys: str, **options: Any) -> None:
        self._let_go, self._holding = threading.Event(), threading.Event()
        self.id = ""

        def hold() -> None:
            with governor.slot(*keys, **options) as lease:
                self.id = lease.id
                self._holding.set()
                assert self._let_go.wait(2 * PATIENCE_SECONDS)

        self._worker = Worker(hold)
        until(lambda: self._holding.is_set() or self._worker.error is not None)
        if self._worker.error is not None:
            raise self._worker.error

    def let_go(self) -> None:
        """Release it and return when that is done."""
        self._let_go.set()
        self._worker.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()


def unrelated_task(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that has inherited nothing from the one that makes it."""
    return asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context())


def waiting_tasks(governor: Governor) -> list[str | None]:
    """The labels of those who wait, first in line first."""
    return [row.task for row in governor.snapshot().waiting]


def is_waiting(governor: Governor, task: str) -> bool:
    """Whether someone with this label stands in line."""
    return task in waiting_tasks(governor)


def holding_tasks(governor: Governor) -> list[str | None]:
    """The labels of those who hold a slot."""
    return [row.task for row in governor.snapshot().leases]


def ticket_of(governor: Governor, task: str) -> str:
    """The id of the waiting ticket with this label."""
    return next(row.id for row in governor.snapshot().waiting if row.task == task)


def is_clean(governor: Governor) -> bool:
    """Whether nobody holds, waits, reserves or is waited for."""
    seen = governor.snapshot()
    turnstile = governor._turnstile
    return not (
        seen.leases
        or seen.waiting
        or any(row.used or row.reserved or row.waiting for row in seen.limits)
        or turnstile.switchboard._waiters
        or turnstile._unfinished
    )


def assert_clean(governor: Governor) -> None:
    """Fail if anything stayed behind in the store or in the governor."""
    if not is_clean(governor):
        gc.collect()
        until(lambda: is_clean(governor))


def assert_counts_are_true(governor: Governor) -> None:
    """Fail if a key's use differs from the weights of the leases on it."""
    seen = governor.snapshot()
    for row in seen.limits:
        below = [
            lease.weight
            for lease in seen.leases
            if any(key == row.key or key.startswith(f"{row.key}/") for key in lease.keys)
        ]
        assert row.used == sum(below), row


def always_busy(store: Any, monkeypatch: Any) -> None:
    """Make every store call that is not patient say that it would have to wait."""
    for name in ("request", "release", "withdraw"):
        original = getattr(store, name)

        def call(
            *args: object, patient: bool = True, original: Any = original, **rest: object
        ) -> object:
            if not patient:
                raise WouldBlock
            return original(*args, **rest)

        monkeypatch.setattr(store, name, call)


class Steps(Generic[T]):
    """Awaits something and reports each time it gives control to the loop, and gets it back."""

    def __init__(
        self, awaitable: Awaitable[T], *, pausing: Callable[[int, asyncio.Future[Any] | None], None]
    ) -> None:
        self._awaitable, self._pausing = awaitable, pausing

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._awaitable.__await__()
        step, error = 0, None
        while True:
            try:
                paused_on = next(inner) if error is None else inner.throw(error)
            except StopIteration as stop:
                answer: T = stop.value
                return answer
            step += 1
            self._pausing(step, paused_on)
            error = None
            try:
                yield paused_on
            except BaseException as thrown:  # noqa: BLE001 - passed on to the inside
                error = thrown
