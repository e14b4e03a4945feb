"""The book of admission, kept in SQL for the length of one transaction.

What is read is remembered and changed in place, as admission expects; ``flush``
writes the keys that changed. Tickets are written as they move.
"""

from __future__ import annotations

from headway.keys import path
from headway.stores.book import PAUSED, milliseconds, new_state, window
from headway.stores.sqlrows import (
    INSERT_LEASE,
    INSERT_WAITING,
    LEASE_COLUMNS,
    STATE_COLUMNS,
    WAITING_COLUMNS,
    cooldown_row,
    decision_from,
    id_range,
    lease_from,
    lease_row,
    read_terms,
    row_from,
    state_from,
    verdict_row,
    waiting_from,
    waiting_row,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from headway.limits import Terms
    from headway.stores.book import KeyState
    from headway.tickets import Decision, Ticket

# A holder's name is the first six letters of its tickets' ids.
HOLDERS_AT_WORK = (
    # One step per holder, however many leases it has.
    "with recursive lease (id) as (select min(id) from leases union all"
    " select (select min(id) from leases where id > substr(lease.id, 1, 6) || '.')"
    " from lease where id is not null)"
    " select substr(id, 1, 6) from lease where id is not null"
    " union all select substr(id, 1, 6) from waiting where reserved is not null"
    " union all select substr(borrower, 1, 6) from loans"
    # A head that is too heavy for the room there is keeps those behind it waiting.
    " union all select substr("
    "(select id from waiting where at = keys.key order by rank, id limit 1), 1, 6)"
    " from keys where waiting > 0 and gate & 1 = 0 and used + reserved < cap"
    # In a new file nothing is granted before all have said what they hold.
    " union all select holder from awaited"
)
# As in the index of this name: the first word is the id of a lease.
IS_INSIDER = "within >= '0' and within < '~'"
# What the leases and tickets are for that those parked were asked from within, word by word.
_WORD_AND_MORE = "substr({0}, 1, instr({0}, char(10)) - 1), substr({0}, instr({0}, char(10)) + 1)"
_KEYS_INSIDE = (
    f"with recursive inside (word, more) as (select {_WORD_AND_MORE.format('words')} from"
    f" (select within || char(10) as words from waiting where {IS_INSIDER}"
    " order by rank, id limit ?)"
    f" union all select {_WORD_AND_MORE.format('more')} from inside where more <> '')"
    " select keys from leases where id in (select word from inside)"
    " union select keys from waiting where id in (select word from inside)"
)
_BACKWARDS = "order by rank desc, id desc limit 1"
IN_FRONT = f"select id from waiting where at = ? and (rank, id) < (?, ?) {_BACKWARDS}"


class SqlBook:
    """Reads and writes one open transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        next_token: Callable[[], int],
        time_of_day: float,
        now: float,
        settled: bool,
    ) -> None:
        self._execute = connection.execute
        self._next_token, self._time_of_day, self._settled = next_token, time_of_day, settled
        self.now = now
        self._states: dict[str, KeyState] = {}
        self._read: dict[str, tuple[tuple[object, ...], tuple[object, ...] | None]] = {}
        self._tickets: dict[str, Ticket | None] = {}
        self._terms: Terms | None = None
        self.new_keys = 0
        # For after the commit: what to tell whom, which lines must look anew, and the holders
        # of those at the head of a line that time alone may move on.
        self.told: list[Decision] = []
        self.stirred: set[str] = set()
        self.timekeepers: set[str] = set()
        # Dead holders whose tickets were given back.
        self.buried: dict[str, list[Ticket]] = {}

    # -- what admission needs -----------------------------------------------------------

    def key(self, key: str) -> KeyState:
        state = self._states.get(key)
        if state is None:
            row = self._execute(
                f"select {STATE_COLUMNS} from keys where key = ?", (key,)
            ).fetchone()
            state = self._remember(row) if row else self._new_key(key)
        return state

    def _remember(self, row: tuple[object, ...]) -> KeyState:
        state = state_from(row, self._execute)
        self._states[state.key], self._read[state.key] = state, (row, cooldown_row(state))
        return state

    def _new_key(self, key: str) -> KeyState:
        state = new_state(key, self.terms())
        self._execute(
            "insert into keys (key, cap, gate, budget) values (?, ?, ?, ?)",
            (key, state.cap, state.gate, state.budget),
        )
        self._states[key], self._read[key] = state, (row_from(state), None)
        self.new_keys += 1
        return state

    def head(self, key: str) -> Ticket | None:
        return self._one_waiting("where at = ? order by rank, id limit 1", key)

    def line(self, key: str, most: int) -> list[Ticket]:
        return list(self._waiting(f"where at = ? order by rank, id limit {most}", key))

    def park(self, ticket: Ticket) -> None:
        self._tickets[ticket.id] = ticket
        self._execute(INSERT_WAITING, waiting_row(ticket))

    def grant(self, ticket: Ticket) -> None:
        ticket.token, ticket.since = self._next_token(), self._time_of_day
        if ticket.id in self._tickets:
            self._execute("delete from waiting where id = ?", (ticket.id,))
        self._tickets[ticket.id] = ticket
        self.insert_lease(ticket)

    def insert_lease(self, ticket: Ticket) -> None:
        self._execute(INSERT_LEASE, lease_row(ticket, ticket.token))

    def strike(self, ticket: Ticket) -> None:
        self._tickets[ticket.id] = None
        self._execute("delete from waiting where id = ?", (ticket.id,))
        self._execute("delete from leases where id = ?", (ticket.id,))

    def lease(self, ticket_id: str) -> Ticket | None:
        ticket = self.ticket(ticket_id)
        return ticket if ticket is not None and ticket.at is None else None

    def ticket(self, ticket_id: str) -> Ticket | None:
        if ticket_id in self._tickets:
            return self._tickets[ticket_id]
        row = self._execute(
            f"select {LEASE_COLUMNS} from leases where id = ?", (ticket_id,)
        ).fetchone()
        if row:
            return self._ticket(row, lease_from)
        return self._one_waiting("where id = ?", ticket_id)

    def borrower(self, lender: str, key: str) -> str | None:
        found = self._execute(
            "select borrower from loans where lender = ? and key = ?", (lender, key)
        ).fetchone()
        return found[0] if found else None

    def lend(self, lender: str, key: str, borrower: str) -> None:
        self._execute("insert into loans values (?, ?, ?)", (lender, key, borrower))
        self._execute("update leases set lent = lent + 1 where id = ?", (lender,))

    def end_loan(self, lender: str, key: str) -> None:
        self._execute("delete from loans where lender = ? and key = ?", (lender, key))
        self._execute("update leases set lent = lent - 1 where id = ?", (lender,))

    def note_child(self, parent: str) -> None:
        self._execute("update leases set has_children = 1 where id = ?", (parent,))

    def parked_children(self) -> list[Ticket]:
        return list(self._waiting("where parent is not null order by rank, id"))

    def parked_insiders(self, most: int) -> list[Ticket]:
        return list(self._waiting(f"where {IS_INSIDER} order by rank, id limit {most}"))

    def insiders_have(self, keys: set[str], most: int) -> bool:
        # On loan it may be the slot of a lease that nobody waits in.
        if any(key in keys for (key,) in self._execute("select key from loans")):
            return True
        rows = self._execute(_KEYS_INSIDE, (most,)).fetchall()
        return any(not keys.isdisjoint(path(tuple(named.split("\n")))) for (named,) in rows)

    def parked_reserving(self, most: int) -> list[Ticket]:
        return list(self._waiting(f"where reserved is not null order by rank, id limit {most}"))

    def parked(self) -> list[Ticket]:
        return list(self._waiting("order by rank, id"))

    def tell(self, ticket: Ticket, decision: Decision) -> None:
        self.told.append(decision)
        row = verdict_row(ticket, decision)
        if row is not None:
            self._execute("insert or replace into verdicts values (?, ?, ?)", row)

    def awaits_someone(self) -> bool:
        if not self._settled:
            awaited = self._execute("select 1 from awaited limit 1").fetchone()
            self._settled = awaited is None
        return not self._settled

    def stir(self, key: str) -> None:
        self.stirred.add(key)

    def charge(self, state: KeyState) -> None:
        self._execute(
            "insert into admitted values (?, ?, 1) on conflict do update set count = count + 1",
            (state.key, milliseconds(self.now)),
        )
        state.spent += 1

    def forgive(self, state: KeyState) -> None:
        span = (state.key, *window(self.now))
        condition = "where key = ? and (at <= ? or at > ?)"
        query = f"select sum(count) from admitted {condition}"
        (expired,) = self._execute(query, span).fetchone()
        if expired:
            self._execute(f"delete from admitted {condition}", span)
            state.spent -= expired

    # -- what the store needs besides -----------------------------------------------------

    def terms(self) -> Terms:
        if self._terms is None:
            self._terms = read_terms(self._execute)
        return self._terms

    def set_terms(self, terms: Terms) -> None:
        self._terms = terms
        self._execute("delete from lines")
        self._execute("delete from paused")
        for line in terms.lines:
            self._execute(
                "insert into lines values (?, ?, ?, ?)",
                (line.pattern, line.slots, line.source, line.requests_per_minute),
            )
        for key in terms.paused:
            self._execute("insert into paused values (?)", (key,))

    def forget_everyone(self) -> None:
        """Strike all tickets and what they had: their holders are dead. Nothing was read yet."""
        for table in ("leases", "waiting", "loans", "verdicts", "awaited"):
            self._execute(f"delete from {table}")
        self._execute("update keys set used = 0, reserved = 0, waiting = 0, promised = 0")
        self._execute("update cooldowns set probe = null")

    def expect_no_more(self, holder: str) -> bool:
        """A holder has said what it holds, or is dead; true if it was the last one awaited."""
        if self._settled:
            return False
        struck = self._execute("delete from awaited where holder = ?", (holder,)).rowcount
        return struck > 0 and not self.awaits_someone()

    def take_verdict(self, ticket_id: str) -> Decision | None:
        """The end that somebody else decided for a ticket, if it was not read yet."""
        row = self._execute("select * from verdicts where id = ?", (ticket_id,)).fetchone()
        if row is None:
            return None
        self._execute("delete from verdicts where id = ?", (ticket_id,))
        return decision_from(*row)

    def tickets_of(self, holder: str) -> list[Ticket]:
        """All of one holder's, those that wait before those that run."""
        first, last = id_range(holder)
        waiting = list(self._waiting("where id > ? and id < ?", first, last))
        leases = self._execute(
            f"select {LEASE_COLUMNS} from leases where id > ? and id < ?", (first, last)
        ).fetchall()
        return waiting + [self._ticket(row, lease_from) for row in leases]

    def leases(self) -> list[Ticket]:
        """Every lease."""
        rows = self._execute(f"select {LEASE_COLUMNS} from leases").fetchall()
        return [self._ticket(row, lease_from) for row in rows]

    def drop_plain_waiting(self, holder: str) -> list[str]:
        """Strike a holder's waiting tickets that have collected nothing; their keys.

        A dead process may leave very many of these.
        """
        first, last = id_range(holder)
        condition = "where id > ? and id < ? and reserved is null and parent is null"
        parked = self._execute(
            f"select at, count(*) from waiting {condition} group by at", (first, last)
        ).fetchall()
        self._execute(f"delete from waiting {condition}", (first, last))
        for key, count in parked:
            self.key(key).waiting -= count
        self._execute("delete from verdicts where id > ? and id < ?", (first, last))
        return [key for key, _ in parked]

    def heads(self) -> set[str]:
        """The holders of those in the stirred lines who have to watch others.

        That is the head; and where there is room that the head is too heavy for, also
        the next one, because then it is the head that keeps it waiting.
        """
        holders: set[str] = set()
        for state in map(self.key, self.stirred):
            if state.waiting:
                first = self._waiting(
                    f"where at = ? order by rank, id limit {2 if state.admits(1) else 1}", state.key
                )
                found = [ticket.holder for ticket in first]
                holders.update(found)
                if state.gate > PAUSED:
                    self.timekeepers.update(found)
        return holders

    def gated(self) -> list[str]:
        """The keys where time may change something, also for someone who comes there next."""
        query = "select key from keys where gate > 1 and (waiting > 0 or spent > 0 or gate > 3)"
        return [key for (key,) in self._execute(query).fetchall()]

    def in_front_of(self, ticket: Ticket) -> list[str]:
        """Whose end a parked ticket's process has to notice.

        The head of a line waits for those at work. Everyone else waits for the one in
        front, who would notice for both; so a whole line of dead is noticed from its end.
        """
        assert ticket.at is not None
        place = (ticket.at, ticket.rank, ticket.id)
        before = self._execute(IN_FRONT, place).fetchone()
        if before is None or self.key(ticket.at).admits(1):
            return self.holders_at_work()
        return [before[0].partition("-")[0]]

    def holders_at_work(self) -> list[str]:
        """Everyone who has a lease or a reservation, and whose end would free something."""
        rows = self._execute(HOLDERS_AT_WORK).fetchall()
        return [holder for (holder,) in rows]

    def all_keys(self) -> list[str]:
        """Every key with a row, in order."""
        return [key for (key,) in self._execute("select key from keys order by key").fetchall()]

    def drop_idle_keys(self) -> None:
        """Forget keys that nobody uses; they come back when asked for."""
        metered = self._execute("select key from keys where spent > 0").fetchall()
        for (key,) in metered:
            self.forgive(self.key(key))
        self.flush()
        self._execute(
            "delete from cooldowns where until < ? and key in"
            " (select key from keys where used = 0 and reserved = 0 and waiting = 0)",
            (self.now,),
        )
        self._execute(
            "delete from keys where used = 0 and reserved = 0 and waiting = 0 and spent = 0"
            " and key not in (select key from cooldowns)"
        )

    def flush(self) -> None:
        """Write the keys that changed."""
        for key, state in self._states.items():
            row, cooldown = row_from(state), cooldown_row(state)
            before, cooldown_before = self._read[key]
            if row != before:
                self._execute(
                    "update keys set cap = ?, gate = ?, used = ?, reserved = ?, waiting = ?,"
                    " hold_seconds = ?, budget = ?, spent = ?, promised = ? where key = ?",
                    (*row[1:], key),
                )
            if cooldown is not None and cooldown != cooldown_before:
                self._execute(
                    "insert or replace into cooldowns values (?, ?, ?, ?, ?, ?)", cooldown
                )
            elif cooldown is None and cooldown_before is not None:
                self._execute("delete from cooldowns where key = ?", (key,))
            self._read[key] = row, cooldown

    # -- inside -----------------------------------------------------------------------------

    def _one_waiting(self, condition: str, argument: str) -> Ticket | None:
        return next(self._waiting(condition, argument), None)

    def _waiting(self, condition: str, *arguments: str) -> Iterator[Ticket]:
        rows = self._execute(
            f"select {WAITING_COLUMNS} from waiting {condition}", arguments
        ).fetchall()
        return (self._ticket(row, waiting_from) for row in rows)

    def _ticket(self, row: tuple[str, ...], make: Callable[..., Ticket]) -> Ticket:
        known = self._tickets.get(row[0])
        if known is not None:
            return known
        ticket = make(row)
        if ticket.parents:
            ticket.borrowed = dict(
                self._execute("select key, lender from loans where borrower = ?", (ticket.id,))
            )
        self._tickets[ticket.id] = ticket
        return ticket
