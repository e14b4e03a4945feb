"""The SQLite store: one machine, any number of processes, nothing to start.

Each operation is one short transaction under the home's guard. Who frees room
grants it to the next in line in that same transaction, and wakes its holder
with a datagram after the commit.
"""

from __future__ import annotations

import _thread
import time
from collections import deque

from headway.errors import StoreUnavailable
from headway.stores.admission import Admission
from headway.stores.base import WouldBlock
from headway.stores.home import Home
from headway.stores.processes import describe
from headway.stores.reader import Reader
from headway.stores.sqlbook import SqlBook, lease_row
from headway.stores.wakeups import Wakeups
from headway.tickets import Granted, Refused, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from sqlite3 import Connection
    from typing import TypeVar

    from headway.config import Settings
    from headway.limits import Terms
    from headway.stores.admission import KeyState
    from headway.stores.base import Census, Outlook
    from headway.tickets import Answer, Decision, Ticket

    T = TypeVar("T")

# Idle keys are forgotten when this process has made as many new ones.
_MANY_KEYS = 8192
_RETRY_SECONDS = 0.005

_INSERT_LEASE = (
    "insert into leases (id, keys, weight, task, priority, parent, within, arrival, since, token)"
    " values (?,?,?,?,?,?,?,?,?,?)"
)
_DELETE_UNLENT_LEASE = "delete from leases where id = ? and lent = 0"


def _boot_clock() -> Callable[[], float]:
    """A clock that runs while the machine sleeps and that nobody can set."""
    try:
        clock = time.CLOCK_BOOTTIME
    except AttributeError:
        return time.monotonic
    return lambda: time.clock_gettime(clock)


class SqliteStore:
    """Tickets and leases of a home, in ``slots.db``."""

    shared = True

    def __init__(self, settings: Settings, *, clock: Callable[[], float] | None = None) -> None:
        self.name = f"sqlite:///{settings.home}"
        self._clock = clock or _boot_clock()
        self._boost = int(settings.boost_seconds * 1e6)
        self._timeout_seconds, self._max_waiting = (
            settings.store_timeout_seconds,
            settings.max_waiting,
        )
        self.news: deque[Decision] = deque()
        self.on_reclaimed: Callable[[Ticket, str], None] = lambda ticket, holder: None
        self._own: dict[str, Ticket] = {}
        self._left_over: deque[tuple[Ticket, float]] = deque()
        self._count = self._new_keys = 0
        self._home = Home(settings.home, self, timeout_seconds=self._timeout_seconds)
        self._reader = Reader(self._home)
        self._wakeups = Wakeups(self._home, self._reader, self)
        self._adopt_file(settings)

    def _adopt_file(self, settings: Settings) -> None:
        """The home's file is the truth about its limits, from this opening on."""
        while True:
            terms = self.terms()
            wanted = terms.with_file(settings.lines, settings.paused)
            if wanted == terms or self.set_terms(wanted, expected=terms):
                return

    def new_id(self) -> str:
        self._count += 1
        return f"{self._home.holder_id}-{self._count}"

    # -- tickets ------------------------------------------------------------------------

    def request(self, ticket: Ticket, *, wait: bool, patient: bool = True) -> Answer:
        self._refuse_reentry()
        self._own[ticket.id] = ticket
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                answer = self._operate(
                    lambda connection: self._request(connection, ticket, wait=wait),
                    patient=patient,
                )
            except Unsettled as unsettled:
                if not patient:
                    raise WouldBlock from None
                if time.monotonic() > deadline:
                    raise StoreUnavailable(self.name, str(unsettled)) from None
                time.sleep(_RETRY_SECONDS)
                continue
            if isinstance(answer, Refused):
                del self._own[ticket.id]
            return answer

    def _request(self, connection: Connection, ticket: Ticket, *, wait: bool) -> Answer:
        awaited = self._home.awaited(connection)
        if awaited:
            raise Unsettled([self._home.live.describe(holder).pid for holder in awaited])
        ticket.arrival = self._home.guard.next_arrival(int(self._clock() * 1e6))
        ticket.rank = ticket.arrival - ticket.priority * self._boost
        ticket.since = time.time()
        if ticket.parent is None and self._go_straight_in(connection, ticket):
            return Granted(ticket.id, ticket.token)
        return self._transact(connection, lambda book: self._enter(book, ticket, wait=wait))

    def _go_straight_in(self, connection: Connection, ticket: Ticket) -> bool:
        """Grant a ticket that finds room and nobody waiting on every one of its keys."""
        path, weight = ticket.path, ticket.weight
        marks = ",".join("?" * len(path))
        execute = connection.execute
        execute("begin immediate")
        try:
            found = execute(
                f"update keys set used = used + ? where key in ({marks})"
                " and used + reserved + ? <= cap and waiting = 0 and paused = 0",
                (weight, *path, weight),
            )
            if found.rowcount == len(path):
                ticket.token = self._home.guard.next_token()
                execute(_INSERT_LEASE, lease_row(ticket))
                execute("commit")
                return True
            execute("rollback")
        except BaseException:
            _roll_back(connection)
            raise
        return False

    def _enter(self, book: SqlBook, ticket: Ticket, *, wait: bool) -> Answer:
        admission = self._admission(book)
        book.load_keys(ticket.path)
        refusal = admission.enter(ticket)
        if refusal is None and book.is_head(ticket):
            # Before anyone waits or is sent away: are those in front alive at all?
            self._reclaim(book, self._home.presence.watch(book.holders_at_work()))
        refusal = refusal or admission.turn_away(ticket, wait=wait)
        if refusal is not None:
            return refusal
        return Granted(ticket.id, ticket.token) if ticket.at is None else Waiting(ticket.id)

    def release(self, ticket: Ticket, held_seconds: float, *, patient: bool = True) -> bool:
        if self._home.guard.owner_thread == _thread.get_ident():
            # A collected generator or a signal handler gives back while this very
            # thread is inside an operation: that operation will do it on its way out.
            self._left_over.append((ticket, held_seconds))
            return True
        if ticket.id not in self._own:
            return False
        was_lease = self._operate(
            lambda connection: self._release(connection, ticket, held_seconds), patient=patient
        )
        self._own.pop(ticket.id, None)
        return was_lease

    def _release(self, connection: Connection, ticket: Ticket, held_seconds: float) -> bool:
        if ticket.parent is None and self._go_straight_out(connection, ticket, held_seconds):
            return True
        return self._transact(connection, lambda book: self._leave(book, ticket, held_seconds))

    def _go_straight_out(self, connection: Connection, ticket: Ticket, held_seconds: float) -> bool:
        """End a lease that nobody waits for and that lends nothing."""
        path = ticket.path
        marks = ",".join("?" * len(path))
        execute = connection.execute
        execute("begin immediate")
        try:
            if execute(_DELETE_UNLENT_LEASE, (ticket.id,)).rowcount:
                found = execute(
                    "update keys set used = used - ?, hold_seconds ="
                    " coalesce(hold_seconds + (? - hold_seconds) / 5, ?)"
                    f" where key in ({marks}) and waiting = 0",
                    (ticket.weight, held_seconds, held_seconds, *path),
                )
                if found.rowcount == len(path):
                    execute("commit")
                    return True
            execute("rollback")
        except BaseException:
            _roll_back(connection)
            raise
        return False

    def _leave(self, book: SqlBook, ticket: Ticket, held_seconds: float) -> bool:
        book.load_keys(ticket.path)
        found = book.ticket(ticket.id)
        if found is None:
            book.take_verdict(ticket.id)
            return False
        if found.at is not None:
            self._admission(book).withdraw(found)
            return False
        for key in found.path:
            book.key(key).learn(held_seconds)
        self._admission(book).release(found)
        return True

    def withdraw(self, ticket: Ticket, *, patient: bool = True) -> Decision | None:
        self._refuse_reentry()
        decision = self._operate(
            lambda connection: self._transact(
                connection, lambda book: self._withdraw(book, ticket)
            ),
            patient=patient,
        )
        if not isinstance(decision, Granted):
            self._own.pop(ticket.id, None)
        return decision

    def _withdraw(self, book: SqlBook, ticket: Ticket) -> Decision | None:
        found = book.ticket(ticket.id)
        if found is None:
            return ticket.verdict or book.take_verdict(ticket.id)
        if found.at is None:
            ticket.token, ticket.at, ticket.since = found.token, None, found.since
            return Granted(ticket.id, ticket.token)
        self._admission(book).withdraw(found)
        return None

    def own_ticket(self, ticket_id: str) -> Ticket | None:
        return self._own.get(ticket_id)

    def cancel(self, ticket_id: str) -> bool:
        def work(book: SqlBook) -> bool:
            ticket = book.ticket(ticket_id)
            if ticket is None or ticket.at is None:
                return False
            self._admission(book).cancel(ticket)
            return True

        return self._change(work)

    def revoke(self, ticket_id: str, reason: str) -> bool:
        def work(book: SqlBook) -> bool:
            lease = book.lease(ticket_id)
            if lease is None:
                return False
            self._admission(book).revoke(lease, reason)
            return True

        return self._change(work)

    # -- terms ----------------------------------------------------------------------------

    def terms(self) -> Terms:
        return self._reader.terms()

    def set_terms(
        self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
    ) -> bool:
        def work(book: SqlBook) -> bool:
            if book.terms() != expected:
                return False
            book.set_terms(terms)
            for key in book.all_keys():
                state, cap, paused = book.key(key), terms.line_for(key).slots, key in terms.paused
                if state.cap != cap or state.paused != paused:
                    self._admission(book).change(key, cap=cap, paused=paused)
            if also is not None:
                also()
            return True

        return self._change(work)

    # -- looking --------------------------------------------------------------------------

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        self._bury_the_dead()
        return self._reader.survey(path)

    def census(self) -> Census:
        self._bury_the_dead()
        return self._reader.census()

    def outlook(self, ticket: Ticket) -> Outlook | None:
        return self._reader.outlook(ticket)

    def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
        return self._reader.positions([ticket.id for ticket in tickets])

    def version(self) -> int:
        return self._reader.version()

    def _bury_the_dead(self) -> None:
        """Nobody may be waiting who would notice: look before showing."""
        live = self._home.live
        dead = [holder for holder in self._reader.holders_at_work() if not live.is_alive(holder)]
        if dead:
            self.reclaim(dead)

    # -- news from others -------------------------------------------------------------------

    def listen(self, timeout_seconds: float) -> None:
        self._wakeups.listen(timeout_seconds)

    def interrupt(self) -> None:
        self._wakeups.interrupt()

    def waiting_tickets(self) -> list[Ticket]:
        """Our tickets that still wait, as far as we know."""
        return [t for t in list(self._own.values()) if t.at is not None and t.verdict is None]

    def decided(self, decision: Decision) -> None:
        """Take note of what became of a ticket of ours, once."""
        ticket = self._own.get(decision.ticket_id)
        if ticket is None or ticket.verdict is not None:
            return
        if isinstance(decision, Granted):
            if ticket.at is None:
                return
            ticket.at, ticket.token, ticket.since = None, decision.token, time.time()
        else:
            ticket.verdict = decision
        self.news.append(decision)

    def reclaim(self, holders: Iterable[str]) -> None:
        """Give back what holders left that are gone, if they are."""
        self._change(lambda book: self._reclaim(book, holders))

    # -- what the home asks of us -----------------------------------------------------------

    def announce(self, connection: Connection) -> None:
        """Say in a database that does not know us what we hold and wait for."""
        own = [ticket for ticket in self._own.values() if ticket.verdict is None]

        def work(book: SqlBook) -> None:
            admission = self._admission(book)
            for ticket in own:
                if book.ticket(ticket.id) is not None:
                    continue
                book.adopt(ticket)
                if ticket.at is not None:
                    admission.restart(ticket)
                    continue
                # Lenders may be back later than we are: until then count it as our own.
                ticket.borrowed.clear()
                book.insert_lease(ticket)
                for key in ticket.path:
                    book.key(key).used += ticket.weight
            book.is_back(self._home.presence.id)
            if not book.awaits_someone():
                admission.serve(book.all_keys())

        self._transact(connection, work)

    def clear_up(self, connection: Connection, dead: list[str]) -> None:
        """Give back what dead holders left in a database that is in use."""
        if dead:
            self._transact(connection, lambda book: self._reclaim(book, dead))

    # -- life -------------------------------------------------------------------------------

    def forget_after_fork(self) -> None:
        self.news.clear()
        self._own, self._left_over = {}, deque()
        self._reader.forget_after_fork()
        self._home.forget_after_fork()
        self._wakeups.forget_after_fork()

    def close(self) -> None:
        for ticket in list(self._own.values()):
            self.release(ticket, 0.0)
        self._reader.close()
        self._home.leave()

    # -- inside -----------------------------------------------------------------------------

    def _refuse_reentry(self) -> None:
        if self._home.guard.owner_thread == _thread.get_ident():
            raise StoreUnavailable(
                self.name, "asked for from inside one of its own operations (a signal handler?)"
            )

    def _operate(self, work: Callable[[Connection], T], *, patient: bool = True) -> T:
        """Run an operation, then send what it has to tell and do what was put off meanwhile."""
        result = self._home.operate(work, patient=patient)
        self._wakeups.send()
        while self._left_over:
            self.release(*self._left_over.popleft())
        return result

    def _change(self, work: Callable[[SqlBook], T]) -> T:
        self._refuse_reentry()
        return self._operate(lambda connection: self._transact(connection, work))

    def _transact(self, connection: Connection, work: Callable[[SqlBook], T]) -> T:
        """Run the work in one transaction of admission's, and note whom to wake."""
        book = SqlBook(connection, next_token=self._home.guard.next_token, now=time.time())
        connection.execute("begin immediate")
        try:
            result = work(book)
            book.flush()
            self._new_keys += book.new_keys
            if self._new_keys > _MANY_KEYS:
                book.drop_idle_keys()
                self._new_keys = 0
            heads = book.heads() if book.stirred else set()
            connection.execute("commit")
        except BaseException:
            _roll_back(connection)
            raise
        self._wakeups.note(book.told, heads)
        return result

    def _admission(self, book: SqlBook) -> Admission:
        return Admission(book, max_waiting=self._max_waiting)

    def _reclaim(self, book: SqlBook, holders: Iterable[str]) -> None:
        admission = self._admission(book)
        for holder in holders:
            if holder == self._home.presence.id or self._home.live.is_alive(holder):
                continue
            described = self._home.live.describe(holder)
            freed = book.drop_plain_waiting(holder)
            for ticket in book.tickets_of(holder):
                if ticket.at is not None:
                    admission.withdraw(ticket)
                else:
                    admission.release(ticket)
                self._wakeups.reclaimed.append(
                    (ticket, f"pid {described.pid} ({described.command})")
                )
            admission.serve(freed)
            self._home.live.remove(holder)
            self._home.presence.unwatch(holder)


class Unsettled(Exception):  # noqa: N818 - handled inside the store
    """The database is new, and not everyone alive has said what they hold."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(pids)
        self.pids = pids

    def __str__(self) -> str:
        who = ", ".join(map(describe, self.pids))
        return f"it was made anew, and {who} has not said yet what it holds"


def _roll_back(connection: Connection) -> None:
    if connection.in_transaction:
        connection.execute("rollback")
