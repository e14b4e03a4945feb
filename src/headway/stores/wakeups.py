"""Wake-ups between the processes of a home.

A message says: look here. It carries what was decided, so that its reader need
not read the database; but the database is the truth, and whoever missed a
message finds out by a look at it, a quarter of a second later at most.

    g INODE TICKET TOKEN    granted, in the database with that inode
    v                       a verdict on one of your tickets is in the database
    h                       you are next in a line: watch those who hold it, or the clock
    a                       the database is new: say what you hold
    e HOLDER                a holder has ended (from our own watching thread)
"""

from __future__ import annotations

import math

from headway.lean import deque
from headway.stores.base import StoreClosed
from headway.tickets import Granted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol, TypeVar

    from headway.stores.base import Holder
    from headway.stores.home import Home
    from headway.stores.own_tickets import OwnTickets
    from headway.stores.reader import Reader
    from headway.tickets import Decision, Ticket

    T = TypeVar("T")

    class Office(Protocol):
        """The store, as far as messages change something in it."""

        on_reclaimed: Callable[[Ticket, str], None]

        def reclaim(self, holders: Iterable[str]) -> None: ...
        def wrap_up(self) -> None: ...
        def tend(self) -> None: ...


_MANY_HOLDERS = 1000
# Whoever gets one message after the other looks as often as whoever gets none.
_LOOK_SECONDS = 0.25
# Whoever has so many tickets does not look in front of each of them.
_MANY_TICKETS = 32
# Of the looks that find nothing, four a second, every so many also test locks.
_PROBE_EVERY = 3
# And every so many, five seconds apart, read everything though nothing seems to have changed:
# whatever was missed in whatever way does not stay missed.
_LOOK_ANEW_EVERY = 20


class Wakeups:
    """Sends and receives them for one process."""

    def __init__(
        self,
        home: Home,
        reader: Reader,
        own: OwnTickets,
        office: Office,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._home, self._reader, self._own = home, reader, own
        self._office, self._clock = office, clock
        self.forget_after_fork()

    def forget_after_fork(self) -> None:
        """What was to be sent is the parent's to send."""
        self._outbox: deque[tuple[str, str]] = deque()
        # Dead holders and the tickets that were given back for them.
        self._buried: deque[tuple[Holder, list[Ticket]]] = deque()
        # Releases asked for from inside an operation.
        self.left_over: deque[tuple[Ticket, float]] = deque()
        # Which head was told of which holders.
        self._told_of: dict[str, set[str]] = {}
        self._seen_version = -1
        self._quiet_looks = 0
        self._looked_at = -math.inf
        # When time alone will let someone in, if that is so and known.
        self._due: float | None = None
        self.due_is_known = True

    @property
    def something_to_tell(self) -> bool:
        return bool(self._outbox or self._buried or self.left_over)

    # -- sending ----------------------------------------------------------------------------

    def note(self, told: Iterable[Decision], heads: set[str], timekeepers: set[str]) -> None:
        """Keep what a committed operation has to tell; ``send`` does it outside the guard.

        ``heads`` are the holders of those who now are next in a line; the timekeepers among
        them are told in any case.
        """
        own = self._home.holder_id
        messages: dict[str, str] = {}
        granted: list[str] = []
        for decision in told:
            holder = decision.ticket_id.partition("-")[0]
            if isinstance(decision, Granted):
                granted.append(holder)
            if holder == own:
                self._own.decided(decision)
            elif isinstance(decision, Granted):
                inode = self._home.database.inode
                line = f"g {inode} {decision.ticket_id} {decision.token}\n"
                messages[holder] = messages.get(holder, "") + line
            else:
                messages[holder] = messages.get(holder, "") + "v\n"
        for head in heads:
            if head in timekeepers or self._has_to_look(head, granted):
                messages[head] = messages.get(head, "") + "h\n"
        self._outbox.extend(messages.items())

    def _has_to_look(self, head: str, granted: list[str]) -> bool:
        """Whether the head may not be watching those who were granted something.

        Who was told once watches for good: there is no need to wake it for the same
        holder again.
        """
        if not granted:
            return True
        if head == self._home.holder_id:
            return not all(map(self._home.presence.watches, granted))
        known = self._told_of.setdefault(head, set())
        if known.issuperset(granted):
            return False
        if len(self._told_of) > _MANY_HOLDERS:
            self._told_of.clear()
        known.update(granted)
        return True

    def note_dead(self, holder: str, tickets: list[Ticket]) -> None:
        """A holder was found dead, and its tickets were given back."""
        # Described now: who has just opened the home clears its card away.
        self._buried.append((self._home.live.describe(holder), tickets))

    def _bury(self, died: Holder, tickets: list[Ticket]) -> None:
        """Clear away what a dead holder left in the file system, and tell of its end."""
        self._home.presence.unwatch(died.id)
        self._home.live.remove(died.id)
        for ticket in tickets:
            self._office.on_reclaimed(ticket, f"pid {died.pid} ({died.command})")

    def send(self) -> None:
        """Wake those who were told something."""
        try:
            self._send()
        except StoreClosed:
            pass  # all that was done on leaving

    def _send(self) -> None:
        gone = []
        for holder, message in _drain(self._outbox):
            if holder == self._home.presence.id:
                self._take_the_lead()
            elif not self._home.presence.send(holder, message):
                gone.append(holder)  # dead, or dying
        for died, tickets in _drain(self._buried):
            self._bury(died, tickets)
        if gone:
            self._office.reclaim(gone)

    def send_last(self) -> None:
        """Before this process leaves, under the guard: nobody sends for it afterwards."""
        presence = self._home.presence
        for holder, message in _drain(self._outbox):
            if holder != presence.id:
                presence.send(holder, message)

    # -- receiving --------------------------------------------------------------------------

    def listen(self, timeout_seconds: float) -> None:
        """Wait for messages for at most this long, and act on them."""
        due = self._find_due()
        if due is not None:
            timeout_seconds = min(timeout_seconds, max(0.0, due - self._clock()))
        messages, some_missing, ended = self._home.presence.receive(timeout_seconds)
        try:
            if due is not None and due <= self._clock():
                self.due_is_known = False
                self._office.tend()
            for message in messages:
                for line in message.splitlines():
                    self._act_on(line, ended)
            if ended:
                self._office.reclaim(ended)
                self._home.presence.watch_by_lock(ended)
            if some_missing or self._seen_version < 0 or not (messages or ended):
                self.catch_up()
                self._probe_watched()
            elif self._clock() - self._looked_at >= _LOOK_SECONDS:
                self.catch_up()
        except BaseException:
            # What the messages said is lost with them: find it in the database next time.
            self._seen_version = -1
            raise

    def _act_on(self, line: str, ended: list[str]) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "g":
            inode, ticket_id, token = rest.split(" ")
            if int(inode) == self._home.database.inode:
                self._own.decided(Granted(ticket_id, int(token)))
            else:
                # Of a database that is gone; or ours is closed for a moment, for a fork.
                self._look_anew()
        elif kind == "e":
            ended.append(rest)
        elif kind == "h":
            self._take_the_lead()
        elif kind in ("v", "a"):
            self._look_anew()

    def _take_the_lead(self) -> None:
        """Be next in a line: watch those who hold it, and the clock."""
        self.due_is_known = False
        self._watch(self._reader.at_work())

    def _find_due(self) -> float | None:
        if not self.due_is_known:
            self.due_is_known = True  # before the look: what is told meanwhile is newer
            self._due = self._reader.due(self._home.presence.id)
        return self._due

    def _look_anew(self) -> None:
        self._seen_version = -1
        self.catch_up()

    def catch_up(self) -> None:
        """Find in the database what messages should have told."""
        self._looked_at = self._clock()
        if not self._home.database.is_current():
            self._home.refresh()
        if self.something_to_tell:
            self._office.wrap_up()
        version = self._reader.version()
        if version == self._seen_version:
            return
        self._seen_version = version
        self.due_is_known = False
        for decision in self._reader.decisions(self._home.presence.id):
            self._own.decided(decision)
        if self._own.waiting(1):
            has_many = len(self._own.waiting(_MANY_TICKETS)) >= _MANY_TICKETS
            self._watch(self._reader.in_front_of(self._home.holder_id, has_many=has_many))

    def _watch(self, holders: list[str]) -> None:
        """Be there when one of those ends who keep us waiting."""
        gone = self._home.presence.watch(holders)
        if gone:
            self._office.reclaim(gone)

    def _probe_watched(self) -> None:
        """Look at the locks themselves, now and then.

        A process can lose its lock and live on: it became another program, or it closed
        all its files as daemons do.
        """
        self._quiet_looks += 1
        if self._quiet_looks % _LOOK_ANEW_EVERY == 0:
            self._look_anew()
        if self._quiet_looks % _PROBE_EVERY == 0:
            gone = [h for h in self._home.presence.watched() if not self._home.live.is_alive(h)]
            if gone:
                self._office.reclaim(gone)

    def interrupt(self) -> None:
        """Make ``listen`` return early, in another thread."""
        try:
            presence = self._home.presence
        except StoreClosed:
            return  # it has returned, or is about to
        presence.send(presence.id, "i")


def _drain(queue: deque[T]) -> Iterator[T]:
    """Take everything out; other threads may do the same at the same time."""
    while queue:
        try:
            yield queue.popleft()
        except IndexError:
            return
