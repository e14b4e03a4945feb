"""Reading a home without its guard: positions, outlooks, the whole picture.

A connection of its own sees one consistent state and holds nobody up, however
long the look takes.
"""

from __future__ import annotations

from headway.errors import StoreUnavailable
from headway.stores.base import Census, Outlook, StoreClosed
from headway.stores.book import METERED, new_state
from headway.stores.database import INNOCENT, suspicion
from headway.stores.driver import sqlite3
from headway.stores.ledger import roll_back
from headway.stores.locks import owned_lock
from headway.stores.sqlbook import HOLDERS_AT_WORK
from headway.stores.sqlrows import (
    LEASE_COLUMNS,
    STATE_COLUMNS,
    WAITING_COLUMNS,
    decision_from,
    id_range,
    lease_from,
    read_terms,
    state_from,
    waiting_from,
)
from headway.stores.stopped import waiters
from headway.tickets import Granted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection
    from typing import Any, TypeVar

    from headway.limits import Terms
    from headway.stores.base import Holder
    from headway.stores.book import KeyState
    from headway.stores.home import Home
    from headway.tickets import Decision, Ticket

    T = TypeVar("T")
    # Runs a query on the reading connection; rows have the types that the schema gives them.
    Look = Callable[..., list[Any]]


_FIRST = "order by rank, id limit 100"
# A look is repeated so often in a database that was damaged or replaced meanwhile.
_LOOKS = 3
_NO_JOB = "id not like '%-job%'"
# So much later than the head's own process the others see to what only time lets in.
_DEPUTY_SECONDS = 0.25


class Reader:
    """A second connection, for looking only."""

    def __init__(self, home: Home, *, clock: Callable[[], float]) -> None:
        self._home, self._clock = home, clock
        self.forget_after_fork()

    def forget_after_fork(self) -> None:
        """The connection is the parent's."""
        database = getattr(self, "_database", None)
        if database is not None:
            database.forget()
        self._mutex = owned_lock()
        self._closed = False
        # What this thread has to do when its present look is over.
        self.afterwards: Callable[[], None] | None = None
        self._openings = 0
        self._database = self._home.database.twin()

    def version(self) -> int:
        """Differs when somebody may have committed something."""
        # SQLite counts for each connection anew.
        return self._read(
            lambda look: self._openings << 32 | int(look("pragma data_version")[0][0])
        )

    def terms(self) -> Terms:
        return self._read(read_terms)

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        def read(look: Look) -> list[KeyState]:
            marks = ",".join("?" * len(path))
            rows = look(f"select {STATE_COLUMNS} from keys where key in ({marks})", tuple(path))
            found = {row[0]: self._state(look, row) for row in rows}
            terms = read_terms(look)
            return [found.get(key) or new_state(key, terms) for key in path]

        return self._read(read)

    def census(self) -> Census:
        live = self._home.live
        census = self._read(
            lambda look: read_census(look, lambda row: self._state(look, row), live.describe)
        )
        census.holders |= {holder.id: holder for holder in live.stopped()}
        census.stopped = waiters(census.holders.values())
        return census

    def awaited(self) -> list[str]:
        """The live holders that have not said yet what they hold in a new database."""
        awaited = self._read(lambda look: look("select holder from awaited"))
        return [holder for (holder,) in awaited if self._home.live.is_alive(holder)]

    def outlook(self, ticket: Ticket) -> Outlook | None:
        def read(look: Look) -> Outlook | None:
            rows = look(f"select {WAITING_COLUMNS} from waiting where id = ?", (ticket.id,))
            if not rows:
                return None
            parked = waiting_from(rows[0])
            before = look(
                "select count(*) from waiting where at = ? and (rank, id) < (?, ?)",
                (parked.at, parked.rank, parked.id),
            )
            state = look(f"select {STATE_COLUMNS} from keys where key = ?", (parked.at,))
            leases = [lease_from(row) for row in look(f"select {LEASE_COLUMNS} from leases")]
            leases = [lease for lease in leases if parked.at in lease.path]
            return Outlook(
                state=self._state(look, state[0]),
                position=before[0][0] + 1,
                leases=leases,
                holders=[
                    self._home.live.describe(holder)
                    for holder in {ticket.holder for ticket in (*leases, parked)}
                ],
            )

        return self._read(read)

    def positions(self, ticket_ids: list[str]) -> dict[str, int]:
        """The places of many tickets with one walk along each line they stand in."""

        def read(look: Look) -> dict[str, int]:
            wanted = set(ticket_ids)
            holders = {ticket_id.partition("-")[0] for ticket_id in ticket_ids}
            keys = {
                key
                for holder in holders
                for (key,) in look(
                    "select distinct at from waiting where id > ? and id < ?", id_range(holder)
                )
            }
            places: dict[str, int] = {}
            for key in keys:
                line = look("select id from waiting where at = ? order by rank, id", (key,))
                places |= {
                    ticket_id: place
                    for place, (ticket_id,) in enumerate(line, 1)
                    if ticket_id in wanted
                }
            return places

        return self._read(read)

    def bystanders(self) -> list[tuple[str, int]]:
        return self._read(lambda look: look(f"select at, rank from waiting where {_NO_JOB}"))

    def ahead(self, key: str, rank: int) -> int:
        query = f"select count(*) from waiting where at = ? and rank < ? and {_NO_JOB}"
        return self._read(lambda look: int(look(query, (key, rank))[0][0]))

    def decisions(self, holder: str) -> list[Decision]:
        """What was decided about a holder's tickets: its leases, and verdicts not yet read."""

        def read(look: Look) -> list[Decision]:
            where = "where id > ? and id < ?"
            granted = look(f"select id, token from leases {where}", id_range(holder))
            verdicts = look(f"select id, kind, detail from verdicts {where}", id_range(holder))
            return [
                *(Granted(ticket_id, token) for ticket_id, token in granted),
                *(decision_from(*row) for row in verdicts),
            ]

        return self._read(read)

    def has_lease(self, ticket_id: str) -> bool:
        query = "select 1 from leases where id = ?"
        return self._read(lambda look: bool(look(query, (ticket_id,))))

    def at_work(self) -> list[str]:
        """Everyone who holds something."""
        return [found for (found,) in self._read(lambda look: look(HOLDERS_AT_WORK))]

    def in_front_of(self, holder: str, *, has_many: bool) -> list[str]:
        """Whose end the holder has to notice, for all its waiting tickets.

        With many tickets only for the first of them in each line: whoever stands between two of
        them is found dead when it would be let in.
        """

        def read(look: Look) -> list[str]:
            before = _before_first if has_many else _before_each
            in_front = before(look, holder)
            if None in in_front:
                in_front.update(found for (found,) in look(HOLDERS_AT_WORK))
            return [found for found in in_front if found is not None]

        return self._read(read)

    def due(self, holder: str) -> float | None:
        """When time alone will let someone in, by the clock.

        The head's process sees to it. The others come a little later, in case it does not.
        """

        def read(look: Look) -> float | None:
            query = f"select {STATE_COLUMNS} from keys where gate > 1 and waiting > 0"
            times = []
            for state in [state_from(row, look) for row in look(query)]:
                oldest = look("select min(at) from admitted where key = ?", (state.key,))[0][0]
                due = state.due_at(oldest)
                head = look(
                    "select id from waiting where at = ? order by rank, id limit 1", (state.key,)
                )
                if due is not None and head:
                    ours = _holder_of(head[0][0]) == holder
                    times.append(due if ours else due + _DEPUTY_SECONDS)
            return min(times, default=None)

        return self._read(read)

    def is_probe(self, ticket_id: str) -> bool:
        """Whether a lease tries a key after its cool-down."""
        query = "select 1 from cooldowns where probe = ?"
        return self._read(lambda look: bool(look(query, (ticket_id,))))

    def _state(self, look: Look, row: tuple[Any, ...]) -> KeyState:
        """A key as it is now, for someone who only looks."""
        state = state_from(row, look)
        if state.gate & METERED or state.spent:
            admitted = look(
                "select at, count from admitted where key = ? order by at", (state.key,)
            )
            state.look(self._clock(), [at for at, count in admitted for _ in range(count)])
        elif state.cooldown is not None:
            state.look(self._clock(), ())
        return state

    def _read(self, read: Callable[[Look], T]) -> T:
        if self.is_mine():
            return self._look_aside(read)
        try:
            with self._mutex:
                return self._look_twice(read)
        finally:
            work, self.afterwards = self.afterwards, None
            if work is not None:
                work()

    def _look_twice(self, read: Callable[[Look], T]) -> T:
        """Look, and look again in a new database if this one is damaged."""
        if self._closed:
            raise StoreClosed
        for _ in range(_LOOKS):
            try:
                return self._look(read)
            except Exception as error:
                if suspicion(error) == INNOCENT:
                    if isinstance(error, (OSError, sqlite3.Error)):
                        raise self._home.unavailable(error) from error
                    raise
                generation = self._database.generation
                self._database.let_go()
                self._home.recheck(error, generation)
        raise StoreUnavailable(self._database.path, "it is damaged or replaced again and again")

    def _look_aside(self, read: Callable[[Look], T]) -> T:
        """Look from inside a look: a signal handler, or a lease that was collected."""
        aside = Reader(self._home, clock=self._clock)
        try:
            return aside._read(read)
        finally:
            aside.close()

    def _look(self, read: Callable[[Look], T]) -> T:
        connection = self._current_connection()
        try:
            roll_back(connection)  # what Ctrl-C left of the last look
            connection.execute("begin")
            return read(lambda *query: connection.execute(*query).fetchall())
        finally:
            roll_back(connection)

    def _current_connection(self) -> Connection:
        database = self._database
        if not (database.is_open and database.is_current() and database.is_whole()):
            # Let the home find or make the file: it knows what has to be said in it.
            self._home.refresh(certainly=database.is_open)
            self._openings += 1
            self._database.open(self._home.guard.generation)
        return self._database.connection

    def come_to_rest(self, seconds: float) -> bool:
        """Before a fork: no look under way, no connection."""
        if not self._mutex.acquire(True, seconds):
            return False
        self._database.let_go()
        return True

    def go_on(self) -> None:
        """Let others look again; safe to repeat."""
        if self.is_mine():
            self._mutex.release()

    def is_mine(self) -> bool:
        """Whether this very thread is in the middle of a look."""
        return self._mutex._is_owned()  # noqa: SLF001 - the one way to know for sure

    def close(self) -> None:
        """Let no one look any more; waits for who looks now."""
        with self._mutex:
            self._closed = True
            self._database.let_go()


def read_census(
    look: Look,
    state_from_row: Callable[[tuple[Any, ...]], KeyState],
    describe: Callable[[str], Holder],
) -> Census:
    """Everything there is in a database."""
    leases = [lease_from(row) for row in look(f"select {LEASE_COLUMNS} from leases")]
    rows = look(f"select {WAITING_COLUMNS} from waiting order by rank, id")
    everyone = [*leases, *(waiting := [waiting_from(row) for row in rows])]
    loans = look("select lender, key, borrower from loans")
    if loans:
        by_id = {ticket.id: ticket for ticket in everyone}
        for lender, key, borrower in loans:
            if borrower in by_id:
                by_id[borrower].borrowed[key] = lender
    return Census(
        terms=read_terms(look),
        states=[state_from_row(row) for row in look(f"select {STATE_COLUMNS} from keys")],
        leases=leases,
        waiting=waiting,
        loans=loans,
        holders=[describe(holder) for holder in {ticket.holder for ticket in everyone}],
    )


def _before_each(look: Look, holder: str) -> set[str | None]:
    """Who stands right in front of any ticket of a holder; none for the head of a line."""
    rows = look(
        "select (select id from waiting as other where other.at = own.at"
        " and (other.rank, other.id) < (own.rank, own.id)"
        " order by other.rank desc, other.id desc limit 1)"
        " from waiting as own where id > ? and id < ?",
        id_range(holder),
    )
    return {_holder_of(ticket_id) for (ticket_id,) in rows}


def _before_first(look: Look, holder: str) -> set[str | None]:
    """The same for the first ticket of a holder in each line, as far as one looks along it."""
    found: set[str | None] = set()
    for (key,) in look("select key from keys where waiting > 0"):
        before = None
        for (ticket_id,) in look(f"select id from waiting where at = ? {_FIRST}", (key,)):
            if _holder_of(ticket_id) == holder:
                break
            before = ticket_id
        found.add(_holder_of(before))
    return found


def _holder_of(ticket_id: str | None) -> str | None:
    return None if ticket_id is None else ticket_id.partition("-")[0]
