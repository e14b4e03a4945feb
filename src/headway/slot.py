"""What callers hold: a slot to ask with, and the lease they get."""

from __future__ import annotations

import time
from contextvars import ContextVar

from headway.errors import HeadwayError, LeaseLost
from headway.tickets import Revoked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType

    from headway.events import Event
    from headway.tickets import Ticket
    from headway.turnstile import Turnstile

# The leases of this thread or task and of those that started it, outermost first.
# Some may have ended meanwhile: a task keeps the context that it was created in.
_held: ContextVar[tuple[Lease, ...]] = ContextVar("headway_held", default=())


class Slot:
    """A request for slots, made by entering it with ``with`` or ``async with``.

    It can be entered again after it was left, but not twice at once.
    """

    __slots__ = ("_lease", "_request", "_turnstile")

    def __init__(self, turnstile: Turnstile, request: Request) -> None:
        self._turnstile, self._request = turnstile, request
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        self._refuse_second_entry()
        self._lease = lease = self._turnstile.acquire(self._request)
        _held.set((*_held.get(), lease))
        return lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._leave()
        if lease is not None:
            self._turnstile.give_back(lease)

    async def __aenter__(self) -> Lease:
        self._refuse_second_entry()
        self._lease = lease = await _aio().acquire(self._turnstile, self._request)
        _held.set((*_held.get(), lease))
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._leave()
        if lease is not None:
            await _aio().give_back(self._turnstile, lease)

    def _refuse_second_entry(self) -> None:
        if self._lease is not None:
            raise HeadwayError(
                "this slot is in use; call slot() once for each with block that runs at a time"
            )

    def _leave(self) -> Lease | None:
        lease, self._lease = self._lease, None
        # Not ContextVar.reset(): a generator may be closed in another context.
        held = _held.get()
        if held and held[-1] is lease:
            _held.set(held[:-1])
        elif lease in held:
            _held.set(tuple(other for other in held if other is not lease))
        return lease


class Request:
    """What a slot asks for, checked."""

    __slots__ = (
        "keys",
        "on_wait",
        "parent",
        "path",
        "priority",
        "task",
        "timeout_seconds",
        "wait",
        "weight",
    )

    def __init__(
        self,
        keys: tuple[str, ...],
        path: tuple[str, ...],
        task: str | None,
        weight: int,
        priority: int,
        timeout_seconds: float | None,
        wait: bool,
        parent: str | None,
        on_wait: Callable[[Event], None] | None,
    ) -> None:
        self.keys, self.path, self.task = keys, path, task
        self.weight, self.priority = weight, priority
        self.timeout_seconds, self.wait = timeout_seconds, wait
        self.parent, self.on_wait = parent, on_wait


class Lease:
    """A granted ticket. It lasts until its ``with`` block is left or its process dies."""

    __slots__ = ("_ended", "_granted_at", "_turnstile", "ticket", "waited_seconds")

    def __init__(self, turnstile: Turnstile, ticket: Ticket, started: float) -> None:
        self._turnstile, self.ticket = turnstile, ticket
        self._granted_at = time.monotonic()
        self.waited_seconds = self._granted_at - started
        self._ended = False

    @property
    def id(self) -> str:
        """The ticket's id, as ``status`` shows it."""
        return self.ticket.id

    @property
    def task(self) -> str | None:
        """The caller's own label."""
        return self.ticket.task

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were asked for."""
        return self.ticket.keys

    @property
    def lost(self) -> bool:
        """Whether the slot was taken back; the work may be running beside someone else's."""
        return isinstance(self.ticket.verdict, Revoked)

    @property
    def token(self) -> int:
        """A number that grows with every grant of the store, to fence late writers off."""
        self.check()
        return self.ticket.token

    def check(self) -> None:
        """Raise ``LeaseLost`` if the slot was taken back."""
        verdict = self.ticket.verdict
        if isinstance(verdict, Revoked):
            raise LeaseLost(self.keys, self.id, verdict.reason)

    def environ(self) -> dict[str, str]:
        """The variables that let a child process go ahead on this lease."""
        self.check()
        task = {"HEADWAY_TASK": self.task} if self.task else {}
        return {**self._turnstile.environ, "HEADWAY_LEASE": self.id, **task}

    @property
    def held_seconds(self) -> float:
        """How long it has been held."""
        return time.monotonic() - self._granted_at

    @property
    def ended(self) -> bool:
        """Whether its block was left."""
        return self._ended

    def end(self) -> bool:
        """Mark it as ended; true for the first to do so."""
        first, self._ended = not self._ended, True
        return first

    def __repr__(self) -> str:
        state = "ended" if self._ended else "lost" if self.lost else "held"
        return f"<Lease {self.id} on {' + '.join(self.keys)}, {state}>"

    def __del__(self) -> None:
        # Someone entered a slot and dropped it, or Ctrl-C struck on the way out of its block.
        if not getattr(self, "_ended", True):
            self._turnstile.give_back(self)


def held_here() -> tuple[str, ...]:
    """The ids of the leases that the present thread or task runs under."""
    held = _held.get()
    return tuple(lease.id for lease in held if not lease.ended) if held else ()


def _aio() -> ModuleType:
    """The asyncio half, loaded with the first ``async with``."""
    from headway import aio  # noqa: PLC0415 - plain code has no use for asyncio

    return aio
