"""How decisions reach those who wait for them.

A store that other processes share has to be listened to. In a process with
one waiting thread, that thread listens itself: nothing is faster. Everyone
else, and every event loop, is served by a background thread, the attendant,
which also does the slow chores: telling waiters that they moved up, and
repeating releases that failed.
"""

from __future__ import annotations

import _thread
import time

from headway import background, journal
from headway.tickets import Revoked, Withdrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeVar

    from headway.stores.base import Store
    from headway.tickets import Decision

    T = TypeVar("T")

    class Waiter(Protocol):
        """Someone who waits for the decision on one ticket."""

        def wake(self, decision: Decision) -> bool:
            """Hand the decision over, perhaps twice; false if nobody is there any more."""


# How long the attendant sleeps when nothing happens. Short while somebody waits for
# another process: a lost wake-up costs this much.
_LISTEN_SECONDS = 0.25
_TICK_SECONDS = 1.0


class ThreadWaiter:
    """A thread that waits for one decision."""

    __slots__ = ("_gate", "decision")

    def __init__(self) -> None:
        self.decision: Decision | None = None
        self._gate = _thread.allocate_lock()
        self._gate.acquire()

    def wake(self, decision: Decision) -> bool:
        self.decision = decision
        try:
            self._gate.release()
        except RuntimeError:  # woken before, by someone whom an interrupt struck right after it
            pass
        return True

    def sleep(self, seconds: float | None) -> None:
        """Sleep until woken, for at most this long."""
        self._gate.acquire(True, -1 if seconds is None else min(seconds, _thread.TIMEOUT_MAX))


class Switchboard:
    """Brings the store's decisions to the waiters of one governor."""

    def __init__(
        self,
        store: Store,
        *,
        chores: Callable[[], bool],
        lost: Callable[[Revoked], None],
        unclaimed: Callable[[Decision], None],
    ) -> None:
        self._store, self._chores, self._lost, self._unclaimed = store, chores, lost, unclaimed
        self.forget_after_fork()

    def forget_after_fork(self) -> None:
        """Start anew: the waiters, the thread and the locks belong to the parent."""
        # Re-entrant: the garbage collector may give a lease back in the middle of anything.
        self._mutex = _thread.RLock()
        # It knows its owner: Ctrl-C may strike right after it was taken.
        self._listening = _thread.RLock()
        self._poked = _thread.allocate_lock()
        self._poked.acquire()
        # The attendant sleeps until a message comes; or until we poke it, while someone
        # else listens for it.
        self._dozing = self._aside = False
        # Whether somebody has listened for itself since the attendant's last turn.
        self._is_served = False
        self._waiters: dict[str, Waiter] = {}
        # The waiter that listens for itself at present.
        self._listener: Waiter | None = None
        # Decisions that came before their waiter was attached.
        self.early: dict[str, Decision] = {}
        self.attending = self._closed = False
        self._busy, self._next_tick = True, 0.0
        self._complaint = ""

    def attach(self, ticket_id: str, waiter: Waiter) -> Decision | None:
        """Wait from now on; or the decision, if it was here first."""
        self.keep_time()
        with self._mutex:
            decision = self.early.pop(ticket_id, None)
            if decision is None:
                self._waiters[ticket_id] = waiter
            if self._closed:  # perhaps just now, by a signal handler: nobody would come and tell
                self._waiters.pop(ticket_id, None)
                return Withdrawn(ticket_id)
            return decision

    def detach(self, ticket_id: str) -> None:
        """Nobody waits for this ticket any more."""
        with self._mutex:
            self._waiters.pop(ticket_id, None)
            self.early.pop(ticket_id, None)

    def operate(self, operation: Callable[[], T]) -> T:
        """Run a store operation and hand out what it has decided."""
        try:
            result = operation()
            self.deliver()
        except BaseException:
            self.deliver_later()
            raise
        return result

    def deliver(self) -> None:
        """Hand out everything that the store has decided about this process's tickets.

        Ctrl-C may strike this thread at any call, and what it delivers is mostly for others. So
        each waiter is woken first and taken off the lists after that. Callers see to it that
        what is left is delivered later.
        """
        while self._store.news:
            self._deliver_next()

    def deliver_later(self) -> None:
        """Have the attendant deliver what this thread was kept from by an exception."""
        if self._store.news:
            self.attend()

    def _deliver_next(self) -> None:
        news, is_reached = self._store.news, True
        with self._mutex:
            if not news:  # another thread took the last one
                return
            decision = news[0]
            waiter = self._waiters.get(decision.ticket_id)
            if isinstance(decision, Revoked):
                waiter = None  # it has heard of the grant, or will
            elif waiter is not None:
                is_reached = waiter.wake(decision)
                if is_reached and waiter is self._listener:
                    # It waits for messages, not for us.
                    self._store.interrupt()
            elif self._store.own_ticket(decision.ticket_id) is not None:
                self.early[decision.ticket_id] = decision
            if is_reached:
                self._taken(decision, waiter)
        if isinstance(decision, Revoked):
            self._lost(decision)
        elif not is_reached:
            self._unclaimed(decision)
            with self._mutex:
                self._taken(decision, waiter)

    def _taken(self, decision: Decision, waiter: Waiter | None) -> None:
        """Take it off the lists, unless a signal handler has done that in the meantime."""
        news = self._store.news
        if waiter is not None and self._waiters.get(decision.ticket_id) is waiter:
            del self._waiters[decision.ticket_id]
        if news and news[0] is decision:
            del news[0]

    def wait(self, waiter: ThreadWaiter, seconds: float | None) -> None:
        """Block this thread until its waiter has a decision or the time is over."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while waiter.decision is None and not self._closed:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            if not self._store.shared or not self._listens(waiter, deadline):
                waiter.sleep(left)

    def _listens(self, waiter: ThreadWaiter, deadline: float | None) -> bool:
        """Listen until the waiter has its decision; false if someone else listens already."""
        try:
            if not self._listening.acquire(False):
                return False
            self._listener = waiter
            self._listen_for(waiter, deadline)
        finally:
            if self._listener is waiter:
                self._listener = None
            self._stop_listening()
        return True

    def _stop_listening(self) -> None:
        """Leave that to the attendant, also after Ctrl-C: others may wait for messages."""
        try:
            self._listening.release()
        except RuntimeError:  # it is someone else's
            return
        self._is_served = True
        if self._waiters or self._aside:
            # Also if it was called before: we may have taken that message.
            self._rouse()

    def _listen_for(self, waiter: ThreadWaiter, deadline: float | None) -> None:
        self._deliver_to_self(waiter)
        while waiter.decision is None:
            left = _LISTEN_SECONDS
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
                if left <= 0:
                    return
            self._listen(left)
            if self._closed:
                return
            self._deliver_to_self(waiter)

    def _deliver_to_self(self, waiter: ThreadWaiter) -> None:
        """Deliver as the one who listens: no need to interrupt oneself."""
        self._listener = None
        self.deliver()
        self._listener = waiter

    def _listen(self, seconds: float) -> None:
        """Listen, and do not let a store that fails for a moment end anyone's wait."""
        try:
            self._store.listen(seconds)
            self._take_complaint_back()
        except Exception as error:  # noqa: BLE001 - whatever fails now may work the next time
            if not self._closed:
                self._complain(error)
                self._poked.acquire(True, _LISTEN_SECONDS)

    def attend(self) -> None:
        """Let the attendant look after the waiters and the chores, from now on."""
        if not self.attending:
            background.prepare()
        with self._mutex:
            if not self.attending and not self._closed:
                background.start(self._attend)
                # Only now: there may be no thread to be had, or Ctrl-C may strike.
                self.attending = True
                return
        self._busy = True
        if self._poked.locked():
            self._poke()
        if self._dozing:
            self._rouse()

    def keep_time(self) -> None:
        """See to it that whoever only time keeps out is let in, where no listener does."""
        if not self._store.shared and self._store.due_seconds() is not None:
            self.attend()

    def _rouse(self) -> None:
        """Have the attendant look for what there is to do, whatever it waits for."""
        self._dozing = False
        self._poke()
        self._store.interrupt()

    def _poke(self) -> None:
        try:
            self._poked.release()
        except RuntimeError:  # someone else did
            pass

    def _attend(self) -> None:
        self.attending = True
        self._next_tick = time.monotonic() + _TICK_SECONDS
        self._busy = True
        while not self._closed:
            try:
                self._take_turn()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a hook's, or the store's
                if not self._closed:
                    self._complain(error)
                    self._poked.acquire(True, _TICK_SECONDS)
        self.attending = False

    def _take_turn(self) -> None:
        if self._store.shared:
            self._wait_for_messages()
        else:
            self._wait_for_time()
        self.deliver()
        if time.monotonic() >= self._next_tick and not self._closed:
            self._next_tick = time.monotonic() + _TICK_SECONDS
            if self._store.shared and self._look_in():
                self.deliver()
            self._busy = self._chores()

    def _wait_for_messages(self) -> None:
        """Listen for those who wait; if nobody does, still be there when a lease is lost."""
        self._dozing = True  # before the look at the waiters: who comes after it wakes us
        if self._waiters and self._listening.acquire(False):
            self._dozing = False
            try:
                self._listen(_LISTEN_SECONDS)
            finally:
                self._listening.release()
        elif self._is_served:  # it is likely to do so again: do not wake up with it each time
            self._is_served = False
            self._poked.acquire(True, _TICK_SECONDS)
        elif self._store.doze(_TICK_SECONDS):
            self._aside = True  # before the try: who listens wakes us when that is over
            if not self._look_in():
                self._poked.acquire(True, _TICK_SECONDS)
        self._dozing = self._aside = False

    def _wait_for_time(self) -> None:
        """Sleep until there is a chore, or time lets someone in."""
        due = self._store.due_seconds()
        waits = [
            seconds
            for seconds in (due, _TICK_SECONDS if self._busy else None)
            if seconds is not None
        ]
        if not self._store.news:  # an interrupt may have kept its thread from delivering it
            self._poked.acquire(True, min(waits, default=-1))
        if due is not None:
            self._store.tend()

    def _look_in(self) -> bool:
        """Learn of lost leases and replaced stores, unless someone else listens for all."""
        if not self._listening.acquire(False):
            return False
        try:
            self._listen(0)
        finally:
            self._listening.release()
        return True

    def _complain(self, error: BaseException) -> None:
        """Say it once, however often the same fails."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            journal.log().warning("listening failed and goes on: %s", error)

    def _take_complaint_back(self) -> None:
        if self._complaint:
            self._complaint = ""
            journal.log().warning("%s answers again", self._store.name)

    def close(self) -> None:
        """Send those who wait away, and let the attendant go. Safe to repeat."""
        with self._mutex:
            self._closed = True
        with self._mutex:
            for ticket_id, waiter in list(self._waiters.items()):
                waiter.wake(Withdrawn(ticket_id))
                self._waiters.pop(ticket_id, None)
        self._poke()
        self._store.interrupt()
