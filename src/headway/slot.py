"""What callers hold: a slot to ask with, and the lease they get."""

from __future__ import annotations

import time

from headway.config import MAX_INHERITED
from headway.errors import HeadwayError, LeaseLost
from headway.lean import ContextVar
from headway.tickets import Revoked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, NoReturn

    from headway.events import Event
    from headway.tickets import Ticket
    from headway.turnstile import Turnstile

# The leases that this thread or task runs under, outermost first: its own and those of
# whoever started it. Some may have ended meanwhile: a task keeps the context that it was
# created in. Tickets, not leases, so that a dropped lease is collected and given back.
_held: ContextVar[tuple[Ticket, ...]] = ContextVar("headway_held", default=())


class Slot:
    """A request for slots, made by entering it with ``with`` or ``async with``.

    It can be entered again after it was left, but not twice at once.
    """

    __slots__ = ("_lease", "request", "turnstile")

    def __init__(self, turnstile: Turnstile, request: Request) -> None:
        self.turnstile, self.request = turnstile, request
        self._lease: HeldLease | None = None

    def __enter__(self) -> Lease:
        if self._lease is not None:
            self._refuse_second_entry()
        self._lease = lease = self.turnstile.acquire(self.request)
        _hold(lease.ticket)
        return lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._lease
        try:
            if lease is not None:
                self.turnstile.give_back(lease)
                _let_go(lease.ticket)
                lease.disarm()
        finally:
            self._lease = None

    async def __aenter__(self) -> Lease:
        if self._lease is not None:
            self._refuse_second_entry()
        lease: HeldLease = await (_aio or _load_aio()).acquire(self.turnstile, self.request)
        self._lease = lease
        _hold(lease.ticket)
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._lease
        try:
            if lease is not None and kind is GeneratorExit:
                # Nothing can be awaited any more: the loop was closed over this task.
                self.turnstile.give_back(lease)
            elif lease is not None:
                await self._agive_back(lease)
            if lease is not None:
                _let_go(lease.ticket)
                lease.disarm()
        finally:
            self._lease = None

    async def _agive_back(self, lease: Lease) -> None:
        ticket, held_seconds = lease.ticket, lease.held_seconds
        try:
            self.turnstile.finish(ticket, held_seconds, patient=False)
        except Exception:  # noqa: BLE001 - busy or broken: a thread waits, reports and repeats
            await (_aio or _load_aio()).finish(self.turnstile, ticket, held_seconds)

    def hand_to(self, user: Callable[[], bool]) -> None:
        """Whoever entered it has handed it to the present thread or task; ``user`` knows that one.

        A wait of the former is none for itself from now on, and one of the latter is.
        """
        lease = self._lease
        if lease is not None:
            lease.ticket.user = user
            if lease.ticket not in _held.get():
                _hold(lease.ticket)

    def _refuse_second_entry(self) -> NoReturn:
        raise HeadwayError(
            "this slot is in use; call slot() once for each with block that runs at a time"
        )


class Request:
    """What a slot asks for, checked."""

    __slots__ = (
        "keys",
        "name",
        "on_wait",
        "parents",
        "path",
        "priority",
        "task",
        "timeout_seconds",
        "wait",
        "weight",
    )

    def __init__(  # noqa: PLR0917 - made in one place, on the fast path
        self,
        keys: tuple[str, ...],
        path: tuple[str, ...],
        task: str | None,
        weight: int,
        priority: int,
        timeout_seconds: float | None,
        wait: bool,  # noqa: FBT001
        parents: tuple[str, ...],
        on_wait: Callable[[Event], None] | None = None,
        name: str = "",
    ) -> None:
        self.keys, self.path, self.task = keys, path, task
        self.weight, self.priority = weight, priority
        self.timeout_seconds, self.wait = timeout_seconds, wait
        self.parents, self.on_wait = parents, on_wait
        # What the ticket's id ends in, if not in a number.
        self.name = name


class Lease:
    """A granted ticket. It lasts until its ``with`` block is left or its process dies."""

    __slots__ = ("_granted_at", "_turnstile", "ticket", "waited_seconds")

    def __init__(self, turnstile: Turnstile, ticket: Ticket, started: float) -> None:
        self._turnstile, self.ticket = turnstile, ticket
        self._granted_at = time.monotonic()
        self.waited_seconds = self._granted_at - started

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
        """Raise ``LeaseLost`` if the slot was taken back; asks the store, ``lost`` does not."""
        self._turnstile.find_out(self.ticket)
        verdict = self.ticket.verdict
        if isinstance(verdict, Revoked):
            raise LeaseLost(self.keys, self.id, verdict.reason)

    @property
    def lifeline(self) -> int | None:
        """A descriptor whose kernel lock keeps the lease, also as a copy in another process.

        None where the store knows in another way who is alive.
        """
        return self._turnstile.store.lifeline

    def environ(self) -> dict[str, str]:
        """The variables that let a child process go ahead on this lease."""
        self.check()
        task = {"HEADWAY_TASK": self.task} if self.task else {}
        lease = {"HEADWAY_LEASE": self._chain(), "HEADWAY_TOKEN": str(self.ticket.token)}
        return {**self._turnstile.environ, **lease, **task}

    def _chain(self) -> str:
        """This lease and those round it, the nearest first, for when it ends before the child.

        Of those that were inherited, the ones that are not known here come last: leases
        of other homes, and leases that have ended.
        """
        known = (self.id, *self.ticket.parents)
        chain = dict.fromkeys((*known, *self._turnstile.inherited))
        return " ".join(list(chain)[:MAX_INHERITED])

    @property
    def held_seconds(self) -> float:
        """How long it has been held."""
        return time.monotonic() - self._granted_at

    @property
    def ended(self) -> bool:
        """Whether it was given back."""
        return self.ticket.ended

    def __repr__(self) -> str:
        state = "ended" if self.ended else "lost" if self.lost else "held"
        return f"<Lease {self.id} on {' + '.join(self.keys)}, {state}>"


class HeldLease(Lease):
    """A lease that gives itself back when it is dropped.

    Someone entered a slot and forgot it, or Ctrl-C struck on the way out of its
    block. After a usual end it becomes a plain lease: Ctrl-C that strikes inside
    ``__del__`` is lost, so that must not run for every lease.
    """

    __slots__ = ()

    def disarm(self) -> None:
        """It was given back."""
        self.__class__ = Lease  # type: ignore[assignment]

    def __del__(self) -> None:
        ticket = getattr(self, "ticket", None)  # none if Ctrl-C struck while it was made
        if ticket is not None and not ticket.ended:
            self._turnstile.give_back(self)


def held_here() -> tuple[str, ...]:
    """The ids of the leases that the present thread or task runs under."""
    held = _held.get()
    if not held:
        return ()
    return tuple([t.id for t in held if not t.ended and (t.user is None or t.user())])


def forget_after_fork() -> None:
    """The leases of the thread that forked are its own."""
    _held.set(())


def _hold(ticket: Ticket) -> None:
    held = _held.get()
    _held.set((*[other for other in held if not other.ended], ticket) if held else (ticket,))


def _let_go(ticket: Ticket) -> None:
    # Not ContextVar.reset(): a generator may be closed in another context.
    held = _held.get()
    if ticket in held:
        _held.set(tuple([other for other in held if other is not ticket]))


# The asyncio half, loaded with the first ``async with``: plain code has no use for it.
_aio: Any = None


def _load_aio() -> Any:
    global _aio  # noqa: PLW0603 - a cache, written once
    from headway import aio  # noqa: PLC0415

    _aio = aio
    return aio
