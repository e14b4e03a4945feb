"""What callers hold: a slot to ask with, and the lease they get."""

from __future__ import annotations

import time

from headway.config import MAX_INHERITED
from headway.current_leases import hold, let_go
from headway.errors import ConfigError, HeadwayError, LeaseLost, StoreUnavailable
from headway.tickets import Revoked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, NoReturn, Self

    from headway.events import Event
    from headway.tickets import Ticket
    from headway.turnstile import Turnstile

# What ``parent=`` takes besides a lease: those that the caller runs under.
CURRENT = "current"


class Slot:
    """A request for slots, made by entering it with ``with`` or ``async with``.

    It can be entered again after it was left, but not twice at once.
    """

    __slots__ = ("_in_use", "_lease", "request", "turnstile")

    def __init__(self, turnstile: Turnstile, request: Request) -> None:
        self.turnstile, self.request = turnstile, request
        self._in_use = False
        self._lease: HeldLease | None = None

    def __enter__(self) -> Lease:
        if self._in_use:
            self._refuse_second_entry()
        self._in_use = True  # before it is granted: others may come while this one waits
        try:
            self._lease = lease = self.turnstile.acquire(self.request)
            hold(lease)
        except BaseException:
            self.__exit__(None, None, None)
            raise
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
                let_go(lease.ticket)
                lease.disarm()
        finally:
            self._lease, self._in_use = None, False

    async def __aenter__(self) -> Lease:
        if self._in_use:
            self._refuse_second_entry()
        self._in_use = True
        try:
            lease: HeldLease = await (_aio or _load_aio()).acquire(self.turnstile, self.request)
            self._lease = lease
            hold(lease)
        except BaseException:
            self.__exit__(None, None, None)
            raise
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
                let_go(lease.ticket)
                lease.disarm()
        finally:
            self._lease, self._in_use = None, False

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
            hold(lease)

    def _refuse_second_entry(self) -> NoReturn:
        raise HeadwayError(
            "this slot is in use; call slot() once for each with block that runs at a time"
        )

    def __copy__(self) -> Slot:
        """The same request, not entered."""
        return Slot(self.turnstile, self.request)

    def __deepcopy__(self, _: object) -> Slot:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a slot cannot be pickled; call slot() in the process that enters it")

    def __repr__(self) -> str:
        state = "entering" if self._in_use else "not entered"
        if self._lease is not None:
            state = f"held as {self._lease.id}"
        return f"<Slot on {' + '.join(self.request.keys)}, {state}>"

    if not TYPE_CHECKING:  # a type checker has its own words for these mistakes

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or not hasattr(Lease, name):
                raise AttributeError(f"'Slot' object has no attribute {name!r}")
            raise AttributeError(
                f"a slot has no {name!r}, its lease has: write"
                f" `with slot(...) as lease:` (or `async with`) and use lease.{name} inside"
            )

        def __await__(self) -> NoReturn:
            raise TypeError("a slot is not awaited but entered: write `async with slot(...):`")

        def __call__(self, *_: object, **__: object) -> NoReturn:
            raise TypeError(
                "a slot is not called but entered: write `with slot(...):` or"
                " `async with slot(...):`; to decorate a function, use @headway.limited(...)"
            )


class Request:
    """What a slot asks for, checked."""

    __slots__ = (
        "borrows_current",
        "former",
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
        *,
        borrows_current: bool = False,
    ) -> None:
        self.keys, self.path, self.task = keys, path, task
        self.weight, self.priority = weight, priority
        self.timeout_seconds, self.wait = timeout_seconds, wait
        self.parents, self.on_wait = parents, on_wait
        # What the ticket's id ends in, if not in a number.
        self.name = name
        # Whether the leases of whoever enters the slot lend as well, before the parents do.
        self.borrows_current = borrows_current
        # The ticket whose place in line the next one gets: it left that for a while.
        self.former: Ticket | None = None


class Lease:
    """A granted ticket. It lasts until its ``with`` block is left or its process dies."""

    __slots__ = ("__weakref__", "_granted_at", "_turnstile", "ticket", "waited_seconds")

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
        """Whether the slot was taken back; the work may be running beside someone else's.

        Also true while a server could not be reached for ``store.lease_seconds``: it may have given
        the slot to another one.
        """
        if isinstance(self.ticket.verdict, Revoked):
            return True
        return not self.ticket.ended and self._turnstile.store.is_unheard

    @property
    def token(self) -> int:
        """A number that grows with every grant of the store, to fence late writers off."""
        self.check()
        return self.ticket.token

    def check(self) -> None:
        """Raise ``LeaseLost`` if the slot was taken back; asks the store, ``lost`` does not."""
        try:
            self._turnstile.find_out(self.ticket)
        except StoreUnavailable as error:
            if self.lost:
                raise LeaseLost(self.keys, self.id, str(error)) from error
            raise
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

    # A copy would give the slots back when it is dropped, while the work goes on.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"lease {self.id} cannot be pickled, its process holds it; pass lease.id to another"
            " process and use it there as parent=, or start that process with lease.environ()"
        )

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


def lender_ids(parent: Lease | str) -> tuple[str, ...]:
    """The leases that ``parent`` lets a request borrow from, the nearest first."""
    if isinstance(parent, str):
        return (parent,)
    if not isinstance(parent, Lease):
        raise ConfigError(f'parent must be a lease, the id of one, or "current", got {parent!r}')
    parent.check()
    if parent.ended:
        raise ConfigError(f"parent lease {parent.id} has ended; it has no slot to lend")
    return (parent.id, *parent.ticket.parents)


# The asyncio half, loaded with the first ``async with``: plain code has no use for it.
_aio: Any = None


def _load_aio() -> Any:
    global _aio  # noqa: PLW0603 - a cache, written once
    from headway import aio  # noqa: PLC0415

    _aio = aio
    return aio
