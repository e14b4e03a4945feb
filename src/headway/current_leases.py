"""The leases that the present task or thread runs under."""

from __future__ import annotations

import _thread
from _weakref import ref

from headway import callers
from headway.lean import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.slot import Lease
    from headway.tickets import Ticket

# The leases that this thread or task runs under, outermost first: its own and those of
# whoever started it. Some may have ended meanwhile: a task keeps the context that it was
# created in. Tickets, not leases, so that a dropped lease is collected and given back.
_held: ContextVar[tuple[Ticket, ...]] = ContextVar("headway_held", default=())
_NEITHER: tuple[tuple[str, ...], tuple[str, ...]] = (), ()


def current_lease() -> Lease | None:
    """The innermost lease that the present task or thread runs under, or None without one.

    A task created inside the block, and ``asyncio.to_thread``, run under it as well, until
    the block is left. ``threading.Thread`` starts without any.
    """
    for ticket in reversed(_held.get()):
        if _is_held_here(ticket):
            return None if ticket.lease is None else ticket.lease()
    return None


def lent_here() -> tuple[str, ...]:
    """The ids of the leases that the present task or thread runs under, the nearest first."""
    return tuple([ticket.id for ticket in reversed(_held.get()) if _is_held_here(ticket)])


def held_here() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of the leases of the very task or thread that runs this, and those round it.

    The latter belong to whoever started it, or were handed to somebody else.
    """
    held = _held.get()
    if not held:
        return _NEITHER
    held = tuple([ticket for ticket in held if not ticket.ended])
    here = callers.present()
    own = [ticket.id for ticket in held if _belongs_to(here, ticket)]
    return tuple(own), tuple([t.id for t in held if t.id not in own])


def _belongs_to(here: callers.Caller, ticket: Ticket) -> bool:
    if ticket.user is not None:
        return ticket.user()
    if ticket.caller in (here, _thread.get_ident()):  # a thread waits for the loop that it runs
        return True
    return callers.waits_for_present(ticket.caller)


def _is_held_here(ticket: Ticket) -> bool:
    return not ticket.ended and (ticket.user is None or ticket.user())


def forget_after_fork() -> None:
    """The leases of the thread that forked are its own."""
    _held.set(())


def hold(lease: Lease) -> None:
    """The present context runs under this lease from now on."""
    ticket, held = lease.ticket, _held.get()
    ticket.lease = ref(lease)
    if ticket not in held:
        _held.set((*[other for other in held if not other.ended], ticket) if held else (ticket,))


def let_go(ticket: Ticket) -> None:
    """The present context has left the block of this ticket."""
    # Not ContextVar.reset(): a generator may be closed in another context.
    held = _held.get()
    if ticket in held:
        _held.set(tuple([other for other in held if other is not ticket]))
