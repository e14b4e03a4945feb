"""The turnstile: takes a request in, waits for its turn, and gives slots back.

Whatever happens on the way - a timeout, Ctrl-C, a cancelled task, a store that
cannot be reached - a ticket ends in exactly one state, and no slot stays behind.
"""

from __future__ import annotations

import time

from headway import forking, keys
from headway.callers import present, running_loop
from headway.current_leases import held_here, lent_here
from headway.errors import AtCapacity, Cancelled, DeadlockRefused, HeadwayError, QueueTimeout
from headway.slot import HeldLease
from headway.stores.base import StoreClosed
from headway.tickets import Granted, Refused, Revoked, Ticket, Waiting, Withdrawn
from headway.waiting import Switchboard, ThreadWaiter
from headway.worrying import Worries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from typing import NoReturn

    from headway.slot import Lease, Request
    from headway.stores.base import Store
    from headway.telling import Hook, Teller
    from headway.tickets import Answer, Decision
    from headway.waiting import Waiter

# Waiting shorter than this is nobody's business; after it, it is visible.
NOTICE_SECONDS = 0.1
# The errors that say how a ticket ended; after any other one that has to be seen to.
SETTLED = (AtCapacity, Cancelled, DeadlockRefused, QueueTimeout)


class Turnstile:
    """Lets the requests of one governor through, one ticket each."""

    def __init__(
        self,
        store: Store,
        teller: Teller,
        *,
        environ: dict[str, str],
        inherited: tuple[str, ...] = (),
    ) -> None:
        self.store, self.teller = store, teller
        # What children are told: the home, and the leases that this process runs under.
        self.environ, self.inherited = environ, inherited
        self._worries = Worries(store, teller)
        self._unfinished: dict[str, tuple[Ticket, float]] = {}
        self.closed = False
        self._straight = 0
        self.switchboard = Switchboard(
            store, chores=self._do_chores, lost=self._lost, unclaimed=self._take_unclaimed
        )

    def acquire(self, request: Request) -> HeldLease:
        """Block until the request is granted."""
        started = time.monotonic()
        ticket = self.new_ticket(request)
        try:
            answer: Answer | Decision = self.store.request(ticket, wait=request.wait)
            if self.store.news:
                self.switchboard.deliver()
            if answer.__class__ is not Granted:
                loop = running_loop()
                if loop is not None and isinstance(answer, Waiting):
                    answer = self._block(loop, ticket)
                decision = self._await_turn(ticket, request, answer)
                if is_verdict(decision):
                    self.finish_or_retry(ticket, 0.0)
                self.settle(ticket, request, decision)
            return self.new_lease(ticket, started)
        except SETTLED:
            raise
        except BaseException:
            self.abandon(ticket)
            raise

    def _block(self, loop: AbstractEventLoop, ticket: Ticket) -> Answer | Decision:
        """Ask again from within all that cannot end while this thread waits: its loop's leases."""
        from headway import deadlocks  # noqa: PLC0415 - words for a rare case

        decision = self.withdraw(ticket)
        if decision is not None:
            return decision
        ticket.clear()
        ticket.within = deadlocks.held_on(loop, self.store, ticket.path)
        answer = self.store.request(ticket, wait=True)
        self.switchboard.deliver()
        if isinstance(answer, Refused) and answer.reason == "deadlock":
            error = DeadlockRefused(answer.key, answer.held_by, (), True)
            self.teller.refused(ticket, str(error))
            raise error
        if isinstance(answer, Waiting):
            deadlocks.warn_of_blocked_loop(" + ".join(ticket.keys))
        return answer

    def queue_up(self, ticket: Ticket, waiter: Waiter) -> Decision | None:
        """Ask without a thread that waits: the decision, or none if the waiter will be told."""
        answer = self.switchboard.operate(lambda: self.store.request(ticket, wait=True))
        if not isinstance(answer, Waiting):
            return answer
        decision = self.switchboard.attach(ticket.id, waiter)
        if decision is None and self.store.shared:
            self.switchboard.attend()
        return decision

    def _await_turn(
        self, ticket: Ticket, request: Request, answer: Answer | Decision
    ) -> Decision | None:
        """The decision on a waiting ticket, or none when its time ran out first."""
        if not isinstance(answer, Waiting):
            return answer
        waiter, timeout = ThreadWaiter(), request.timeout_seconds
        notice = NOTICE_SECONDS if timeout is None else min(NOTICE_SECONDS, timeout)
        try:
            early = self.switchboard.attach(ticket.id, waiter)
            if early is not None:  # otherwise another thread may have written it by now
                waiter.decision = early
            self.switchboard.wait(waiter, notice)
            if waiter.decision is None and timeout != notice and not self.closed:
                self.worry(ticket)
                self.announce(ticket, request.on_wait)
                self.switchboard.wait(waiter, None if timeout is None else timeout - notice)
        finally:
            self.switchboard.detach(ticket.id)
        if waiter.decision is None and self.closed:
            return Withdrawn(ticket.id)
        return waiter.decision or self.withdraw(ticket)

    def withdraw(self, ticket: Ticket) -> Decision | None:
        """Leave the line, and wake those whom that lets in; or learn what was decided before."""
        return self.switchboard.operate(lambda: self.store.withdraw(ticket))

    def new_ticket(self, request: Request) -> Ticket:
        """A ticket for this request, made by the present thread or task."""
        if self.closed:
            self.refuse_if_closed()
        ticket_id = self.store.new_id(request.name)
        if self.store.shared and not self.switchboard.attending:
            # From now on others may have something to tell us, whether we wait or not.
            self.switchboard.attend()
        (within, around), parents = held_here(), request.parents
        if request.borrows_current:
            parents = (*lent_here(), *parents)
        ticket = Ticket(
            ticket_id,
            request.keys,
            request.path,
            request.task,
            request.weight,
            request.priority,
            parents,
            within,
            around,
            request.timeout_seconds is not None,
        )
        ticket.caller = present()
        former = request.former
        if former is not None:
            ticket.arrival, ticket.rank, ticket.since = former.arrival, former.rank, former.since
        return ticket

    def new_lease(self, ticket: Ticket, started: float) -> HeldLease:
        """The lease of a granted ticket."""
        if self.closed:
            self._turn_away(ticket)
        lease = HeldLease(self, ticket, started)
        if self.teller.hears_all():
            self.teller.granted(ticket, lease.waited_seconds)
        return lease

    def _turn_away(self, ticket: Ticket) -> NoReturn:
        """It was granted while this was closed, and is given back if it was not yet."""
        self.finish_or_retry(ticket, 0.0)
        self.teller.abandoned(ticket)
        raise Cancelled(ticket.keys, ticket.id)

    def is_time_to_give_way(self) -> bool:
        """Whether a task that never had to wait should let others on its loop have a turn."""
        self._straight += 1
        return self._straight % (16 if self.store.shared else 128) == 0

    def announce(self, ticket: Ticket, on_wait: Hook | None) -> None:
        """Make a wait visible, and have its progress followed."""
        if self.teller.queued(ticket, on_wait):
            self.switchboard.attend()

    def worry(self, ticket: Ticket) -> None:
        """Have a wait looked at that gets long."""
        if self._worries.note(ticket):
            self.switchboard.attend()

    def settle(self, ticket: Ticket, request: Request, decision: Decision | None) -> None:
        """Raise what the decision means to the caller, unless it is a grant."""
        self._worries.drop(ticket.id)
        self.teller.unfollow(ticket.id)
        if isinstance(decision, Granted):
            return
        if isinstance(decision, Refused):
            error = self._refusal(ticket, decision, would_wait=request.wait)
            self.teller.refused(ticket, str(error))
            raise error
        if isinstance(decision, Withdrawn):
            self.teller.cancelled(ticket)
            raise Cancelled(ticket.keys, ticket.id)
        timeout_seconds = request.timeout_seconds or 0.0
        self.teller.timed_out(ticket, timeout_seconds)
        raise QueueTimeout(ticket.keys, timeout_seconds)

    def _refusal(self, ticket: Ticket, refused: Refused, *, would_wait: bool) -> HeadwayError:
        from headway import views  # noqa: PLC0415 - loaded when something is shown

        key = refused.key
        if refused.reason == "deadlock":
            from headway import deadlocks  # noqa: PLC0415 - words for a rare case

            return deadlocks.refusal(self.store, ticket, refused)
        states = self.store.survey(keys.path((key,)))
        capacity = views.capacity(key, states)
        if refused.reason == "cooling":
            return views.cooling_down(capacity, states, would_wait=would_wait)
        texts = {
            "full": f"no slot free on {key}: {capacity.used} of {capacity.limit} in use,"
            f" {capacity.waiting} waiting",
            "paused": f"no slot on {key}: it is paused, so nobody is let in until it is resumed",
            "budget": f"no slot on {key}: its requests for this minute are spent",
            "too_heavy": f"weight {ticket.weight} can never fit on {key}, whose limit is"
            f" {capacity.limit}; raise the limit or ask for less",
            "queue_full": f"the queue of {key} is full with {capacity.waiting} waiting;"
            " try later, or raise queue.max_waiting",
            "settling": f"no slot on {key} yet: {self.store.name} may have lost what it knew, and"
            " lets nobody in until all who hold something had the time to say so",
        }
        return AtCapacity(capacity, texts[refused.reason])

    # -- giving back ------------------------------------------------------------------

    def give_back(self, lease: Lease) -> None:
        """End a lease. Never raises for the store: what fails is repeated until it works."""
        if not lease.ticket.ended:
            self.finish_or_retry(lease.ticket, lease.held_seconds)

    def abandon(self, ticket: Ticket) -> None:
        """See to it that a ticket whose caller is gone neither waits nor holds."""
        self.switchboard.detach(ticket.id)
        self.finish_or_retry(ticket, 0.0)
        self.teller.abandoned(ticket)

    def finish_or_retry(self, ticket: Ticket, held_seconds: float) -> None:
        """Take a ticket off the store, now or as soon as the store can be used."""
        self._unfinished[ticket.id] = (ticket, held_seconds)
        try:
            self.finish(ticket, held_seconds)
        except BaseException as error:
            self.switchboard.attend()
            if not isinstance(error, Exception):
                raise
            ticket.ended = True
            self.teller.release_failed(ticket, error)

    def finish(self, ticket: Ticket, held_seconds: float, *, patient: bool = True) -> None:
        """Take a ticket off the store, waiting or granted."""
        try:
            ended_lease = self.store.release(ticket, held_seconds, patient=patient)
            ticket.ended = True
            if self._unfinished:
                self._unfinished.pop(ticket.id, None)
            if ended_lease and self.teller.hears_all():
                self.teller.released(ticket, held_seconds)
            if self.store.news:
                self.switchboard.deliver()
            if self.switchboard.early:
                self.switchboard.detach(ticket.id)
        except BaseException:  # Ctrl-C: the next in line has to hear of its grant all the same
            self.switchboard.deliver_later()
            raise

    def prove(self, ticket: Ticket) -> None:
        """The provider has answered what runs under a lease.

        If that was the first to try after a cool-down, those who wait for it go on. Only a
        ticket that has drawn an arrival can be one.
        """
        if ticket.arrival:
            self.switchboard.operate(lambda: self.store.prove(ticket))

    def stand_back(self, ticket: Ticket) -> None:
        """The provider will not answer what runs under a lease, so its end proves nothing.

        If that was the first to try after a cool-down, the next one tries, alone again.
        """
        if ticket.arrival:
            self.switchboard.operate(lambda: self.store.stand_back(ticket))

    def find_out(self, ticket: Ticket) -> None:
        """Make sure that we know of a loss, if our lease was taken back by now."""
        known = ticket.ended or ticket.verdict is not None or self.closed
        try:
            if not known:
                self.switchboard.operate(lambda: self.store.is_lost(ticket))
        except StoreClosed:
            pass  # just now: its verdict says so

    def _take_unclaimed(self, decision: Decision) -> None:
        """A decision came for a waiter whose event loop is closed: nobody will use it."""
        ticket = self.store.own_ticket(decision.ticket_id)
        if ticket is not None:
            self.abandon(ticket)

    def _lost(self, revoked: Revoked) -> None:
        ticket = self.store.own_ticket(revoked.ticket_id)
        if ticket is not None:
            self.teller.lost(ticket, revoked.reason)

    def _do_chores(self) -> bool:
        """What the attendant does once a second; true while there is more to do."""
        for ticket, held_seconds in list(self._unfinished.values()):
            self.finish_or_retry(ticket, held_seconds)
        is_worried, is_followed = self._worries.look(), self.teller.follow()
        return is_worried or is_followed or bool(self._unfinished)

    # -- life -------------------------------------------------------------------------

    def come_to_rest(self) -> bool:
        """Before a fork: have nothing under way in the store; false if that takes long."""
        return self.store.come_to_rest()

    def go_on(self) -> None:
        """After it, in the parent."""
        self.store.go_on()
        if self.closed:  # by a signal handler, meanwhile
            self.close()

    def forget_after_fork(self) -> None:
        """In a forked child: nothing of the parent's is ours."""
        self._unfinished = {}
        parts = (self.store, self.teller, self._worries, self.switchboard)
        forking.run_all([part.forget_after_fork for part in parts])
        if self.closed:  # the parent was in the middle of that
            self.close()

    def close(self) -> None:
        """Give everything back, send those who wait away, and stop listening.

        Whoever closes it at the same time returns when that is done. Safe to repeat, also
        after Ctrl-C.
        """
        self.closed = True
        self.switchboard.close()
        try:
            self.store.close()
        finally:
            if self.store.closed:  # until then a fork has to know of it
                forking.unregister(self)

    def refuse_if_closed(self) -> None:
        """Raise if ``close`` was called."""
        if self.closed:
            raise StoreClosed


def close_all() -> None:
    """Give everything back at the end of the process."""
    for turnstile in forking.survivors():
        if not isinstance(turnstile, Turnstile):
            continue
        try:
            turnstile.close()
        except Exception as error:  # noqa: BLE001 - the others have to be closed as well
            turnstile.teller.close_failed(error)


def is_verdict(decision: Decision | None) -> bool:
    """Whether somebody else ended the ticket: then its verdict in the store was read now."""
    return isinstance(decision, Withdrawn | Refused)
