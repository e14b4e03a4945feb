"""The usual cases of coming and going, in as few statements as they take.

A shortcut does exactly what admission would do, or nothing: whatever is unusual
(loans, gates, heavy or several lines, a dead holder) it leaves to admission.
The tests hold both against the same model.
"""

from __future__ import annotations

import time

from headway.limits import UNCAPPED
from headway.stores.ledger import roll_back
from headway.stores.sqlbook import HOLDERS_AT_WORK, IN_FRONT
from headway.stores.sqlrows import INSERT_LEASE, INSERT_WAITING, lease_row, waiting_row
from headway.tickets import Granted, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Cursor

    from headway.stores.home import Home
    from headway.stores.wakeups import Wakeups
    from headway.tickets import Ticket

_TAKE_ROOM = (
    "update keys set used = used + ? where key = ?"
    " and used + reserved + ? <= cap and waiting = 0 and gate = 0"
)
_FREE_ROOM = (
    "update keys set used = used - ?, hold_seconds ="
    " coalesce(hold_seconds + (? - hold_seconds) / 5, ?) where key = ? and waiting = 0 and gate < 4"
)
_DELETE_LONE_LEASE = "delete from leases where id = ? and lent = 0 and has_children = 0"
_LOOK = "select used + reserved, cap, waiting, gate from keys where key = ?"
_HEAD = (
    "select id, rank, keys, weight, parent, reserved from waiting where at = ?"
    " order by rank, id limit 1"
)
_MAKE_LEASE = (
    "insert into leases"
    " select id, keys, weight, task, priority, parent, within, arrival, ?, ?, 0, 0"
    " from waiting where id = ?"
)
_LEARN = (
    "update keys set waiting = waiting - ?, hold_seconds ="
    " coalesce(hold_seconds + (? - hold_seconds) / 5, ?) where key = ?"
)
# So many busy paths are remembered.
_MANY_PATHS = 4096


class Shortcuts:
    """Coming and going of tickets without parents; the caller is under the guard."""

    def __init__(
        self,
        home: Home,
        wakeups: Wakeups,
        *,
        max_waiting: int,
        new_place: Callable[[Ticket], None],
    ) -> None:
        self._home, self._wakeups = home, wakeups
        self._max_waiting, self._new_place = max_waiting, new_place
        # Paths on which someone waited the last time: there it pays to look first.
        self._busy: set[tuple[str, ...]] = set()

    def come(self, ticket: Ticket, *, wait: bool) -> Granted | Waiting | None:
        """Grant the ticket or put it at the end of one line; nothing if it is not that simple."""
        cursor = self._home.database.cursor
        try:
            cursor.execute("begin immediate")
            if ticket.path not in self._busy:
                if self._take_room(cursor, ticket):
                    return Granted(ticket.id, ticket.token)
                self._turns_out_busy(cursor, ticket)
            if wait and self._stand_in_line(cursor, ticket):
                return Waiting(ticket.id)
            if ticket.path not in self._busy and self._take_room(cursor, ticket):
                return Granted(ticket.id, ticket.token)
            cursor.execute("rollback")
        except BaseException:
            ticket.clear()
            roll_back(self._home.database.connection)
            raise
        return None

    def go(self, ticket: Ticket, held_seconds: float) -> bool:
        """End a lease that nobody waits for, or that one other ticket takes over as it is."""
        cursor = self._home.database.cursor
        try:
            cursor.execute("begin immediate")
            if ticket.path not in self._busy:
                if self._free_room(cursor, ticket, held_seconds):
                    return True
                self._turns_out_busy(cursor, ticket)
            if self._hand_over(cursor, ticket, held_seconds):
                return True
            if ticket.path not in self._busy and self._free_room(cursor, ticket, held_seconds):
                return True
            cursor.execute("rollback")
        except BaseException:
            roll_back(self._home.database.connection)
            raise
        return False

    def _turns_out_busy(self, cursor: Cursor, ticket: Ticket) -> None:
        """Undo the attempt, and look before leaping from now on."""
        if len(self._busy) >= _MANY_PATHS:
            self._busy.clear()
        self._busy.add(ticket.path)
        cursor.execute("rollback")
        cursor.execute("begin immediate")

    def _take_room(self, cursor: Cursor, ticket: Ticket) -> bool:
        """Room and nobody waiting on every key."""
        weight, execute = ticket.weight, cursor.execute
        for key in ticket.path:
            execute(_TAKE_ROOM, (weight, key, weight))
            if cursor.rowcount == 0:
                return False
        token, ticket.since = self._home.guard.next_token(), time.time()
        execute(INSERT_LEASE, lease_row(ticket, token))
        execute("commit")
        ticket.token = token
        return True

    def _free_room(self, cursor: Cursor, ticket: Ticket, held_seconds: float) -> bool:
        """Nobody counts on the lease, and nobody waits on any key."""
        weight, execute = ticket.weight, cursor.execute
        execute(_DELETE_LONE_LEASE, (ticket.id,))
        if cursor.rowcount == 0:
            return False
        for key in ticket.path:
            execute(_FREE_ROOM, (weight, held_seconds, held_seconds, key))
            if cursor.rowcount == 0:
                return False
        execute("commit")
        return True

    def _stand_in_line(self, cursor: Cursor, ticket: Ticket) -> bool:
        """The first limited key is full, and nobody there has to make way for this ticket."""
        # Somebody inside of a lease may come to wait for ever behind a heavy one.
        is_plain = not ticket.within and ticket.weight == 1
        found = self._full_key(cursor, ticket) if is_plain else None
        if found is None:
            return False
        key, waiting = found
        execute = cursor.execute
        self._new_place(ticket)
        if waiting:
            before = execute(IN_FRONT, (key, ticket.rank, ticket.id)).fetchall()
            if not before:
                return False
            in_front = [before[0][0].partition("-")[0]]
        else:
            in_front = [holder for (holder,) in execute(HOLDERS_AT_WORK).fetchall()]
        if self._home.presence.watch(in_front):
            return False  # someone is dead
        ticket.at = key
        execute(INSERT_WAITING, waiting_row(ticket))
        execute("update keys set waiting = waiting + 1 where key = ?", (key,))
        execute("commit")
        return True

    def _full_key(self, cursor: Cursor, ticket: Ticket) -> tuple[str, int] | None:
        """The first limited key of the path, if it is full, and how many wait there."""
        full = None
        for key in ticket.path:
            state = cursor.execute(_LOOK, (key,)).fetchone()
            if state is None:
                return None
            taken, cap, waiting, gate = state
            if gate or ticket.weight > cap:
                return None
            if full is None and cap < UNCAPPED:
                if taken < cap:
                    break
                full = (key, waiting)
        if full is None:
            self._busy.discard(ticket.path)
        elif full[1] >= self._max_waiting:
            return None
        return full

    def _hand_over(self, cursor: Cursor, ticket: Ticket, held_seconds: float) -> bool:
        """One line on the whole path, and its head asks for just what becomes free.

        Then no count changes but the length of that line, and nobody else can be served.
        """
        found = self._only_line(cursor, ticket)
        if found is None:
            return False
        (key, waiting), execute = found, cursor.execute
        head = execute(_HEAD, (key,)).fetchone()
        wanted = ("\n".join(ticket.keys), ticket.weight, None, None)
        if head is None or head[2:] != wanted:
            return False
        execute(_DELETE_LONE_LEASE, (ticket.id,))
        if cursor.rowcount == 0:
            return False
        token = self._home.guard.next_token()
        execute(_MAKE_LEASE, (time.time(), token, head[0]))
        execute("delete from waiting where id = ?", (head[0],))
        for passed in ticket.path:
            execute(_LEARN, (passed == key, held_seconds, held_seconds, passed))
        following = execute(_HEAD, (key,)).fetchone() if waiting > 1 else None
        execute("commit")
        heads = {following[0].partition("-")[0]} if following else set()
        self._wakeups.note([Granted(head[0], token)], heads, set())
        return True

    def _only_line(self, cursor: Cursor, ticket: Ticket) -> tuple[str, int] | None:
        """The one key of the path where somebody waits, exactly full, and how many wait."""
        line = None
        for key in ticket.path:
            state = cursor.execute(_LOOK, (key,)).fetchone()
            if state is None:
                return None
            taken, cap, waiting, gate = state
            if gate or taken > cap or (waiting and (line or taken < cap)):
                return None
            if waiting:
                line = (key, waiting)
        if line is None:
            self._busy.discard(ticket.path)
        return line
